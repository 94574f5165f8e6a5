// The document of the HTTP API: /openapi.json, laid out to be read.

const make = (tag, content, className) => {
  const made = document.createElement(tag);
  if (className) made.className = className;
  made.append(...[content ?? ""].flat());
  return made;
};

let schemas = {};
const named = (schema) => (schema && schema.$ref ? schemas[schema.$ref.split("/").pop()] : schema);

// A schema in one line: what a value may be.
function said(schema) {
  if (!schema) return "";
  if (schema.$ref) return schema.$ref.split("/").pop();
  const either = schema.anyOf || schema.oneOf;
  if (either) return either.map(said).join(" or ");
  if (schema.const !== undefined) return JSON.stringify(schema.const);
  if (schema.enum) return schema.enum.map((each) => JSON.stringify(each)).join(" or ");
  if (schema.type === "array") return "list of " + said(schema.items);
  if (schema.type === "object" && schema.additionalProperties) return "object of " + said(schema.additionalProperties);
  const bounds = [
    ["minimum", "≥ "],
    ["exclusiveMinimum", "> "],
    ["maximum", "≤ "],
    ["maxLength", "up to "],
  ]
    .filter(([bound]) => schema[bound] !== undefined)
    .map(([bound, sign]) => sign + schema[bound]);
  return [schema.type || "anything", ...bounds].join(", ");
}

function table(rows) {
  const head = make(
    "tr",
    ["name", "is", "means"].map((title) => make("th", title)),
  );
  return make("table", [
    head,
    ...rows.map((row) =>
      make(
        "tr",
        row.map((each) => make("td", each)),
      ),
    ),
  ]);
}

function members(schema) {
  const model = named(schema);
  const required = new Set(model.required || []);
  return Object.entries(model.properties || {}).map(([name, member]) => [
    make("code", name),
    said(member) + (required.has(name) ? "; required" : ""),
    member.description || "",
  ]);
}

// The schema, and every model that it leads to, once.
function shown(schema, seen = new Set()) {
  if (!schema) return [];
  const inner = [schema.items, schema.additionalProperties, ...(schema.anyOf || []), ...(schema.oneOf || [])].filter(
    (each) => each && typeof each === "object",
  );
  if (!schema.$ref) return inner.flatMap((each) => shown(each, seen));
  if (seen.has(schema.$ref)) return [];
  seen.add(schema.$ref);
  const model = named(schema);
  const after = Object.values(model.properties || {}).flatMap((each) => shown(each, seen));
  return [
    make("h3", [make("code", schema.$ref.split("/").pop()), " ", make("span", model.description || "", "soft")]),
    table(members(schema)),
    ...after,
  ];
}

function operation(verb, path, found) {
  const parts = [];
  if (found.description) parts.push(make("p", found.description));
  parts.push(make("p", ["operation ", make("code", found.operationId)], "soft"));
  if (found.parameters) {
    parts.push(
      make("h3", "parameters"),
      table(
        found.parameters.map((each) => [
          make("code", each.name),
          `${said(each.schema)}, in ${each.in}${each.required ? "; required" : ""}`,
          each.description || "",
        ]),
      ),
    );
  }
  const content = (holder) => holder && holder.content && holder.content["application/json"];
  const body = content(found.requestBody);
  if (body) parts.push(make("h3", "body"), ...shown(body.schema));
  const answer = content(found.responses["200"]);
  if (answer) parts.push(make("h3", "answer"), ...shown(answer.schema));
  const problems = Object.entries(found.responses).filter(([status]) => status >= 400);
  parts.push(
    make("h3", "problems"),
    make(
      "table",
      problems.map(([status, problem]) => make("tr", [make("td", status), make("td", problem.description)])),
    ),
  );
  const title = make("summary", [
    make("span", verb.toUpperCase(), "verb"),
    make("code", path),
    " ",
    make("span", found.summary || "", "soft"),
  ]);
  const whole = make("details", [title, make("div", parts)]);
  whole.id = found.operationId;
  return whole;
}

async function show() {
  const about = document.getElementById("about");
  try {
    const answer = await fetch("openapi.json");
    if (!answer.ok) throw new Error(answer.statusText);
    const found = await answer.json();
    schemas = found.components.schemas;
    const byTag = new Map();
    for (const [path, verbs] of Object.entries(found.paths)) {
      for (const [verb, each] of Object.entries(verbs)) {
        const tag = (each.tags || ["other"])[0];
        if (!byTag.has(tag)) byTag.set(tag, []);
        byTag.get(tag).push(operation(verb, path, each));
      }
    }
    document
      .getElementById("operations")
      .replaceChildren(...[...byTag].flatMap(([tag, operations]) => [make("h2", tag), ...operations]));
    about.textContent = `Version ${found.info.version}. ${found.info.description}`;
    if (location.hash) document.getElementById(location.hash.slice(1))?.setAttribute("open", "");
  } catch (error) {
    about.textContent = "The document cannot be read: " + error.message;
  }
}
show();
