// What a request asks for, as the API has it and as an address or a person says it.

/**
 * Names and values, `zone=a|b, tier=fast`; "" for none.
 * @param {Record<string, string | number | string[]> | null | undefined} pairs
 */
export function saidPairs(pairs) {
  return Object.entries(pairs ?? {})
    .map(([name, value]) => `${name}=${Array.isArray(value) ? value.join("|") : value}`)
    .join(", ");
}

/** @param {{ key: string, over?: string, max?: number, skew?: number }} spread */
export function saidSpread({ key, over = "node", max, skew }) {
  return `spread ${key} over ${over}, ${max ? `at most ${max} each` : `differing by ${skew} at most`}`;
}

/** @param {string | null} text @returns {[string, string][]} */
function pairsOf(text) {
  return (text ?? "")
    .split(",")
    .map((pair) => pair.trim())
    .filter(Boolean)
    .map((pair) => {
      const [name, ...value] = pair.split("=");
      return [name.trim(), value.join("=").trim()];
    });
}

/** The hint that an address asks with; null when it asks for nothing. @param {URLSearchParams} query */
export function hintOf(query) {
  const template = query.get("template"),
    image = query.get("image");
  if (!template && !query.has("cpu") && !query.has("memory")) return null;
  const size = template
    ? { kind: "sandbox", template_id: template }
    : {
        kind: "cold_sandbox",
        cpu_count: Number(query.get("cpu") ?? 0),
        memory_mb: Number(query.get("memory") ?? 0),
        images: image ? [image] : [],
      };
  const require = pairsOf(query.get("require")).map(([name, value]) => [name, value.split("|")]);
  const resources = pairsOf(query.get("resources")).map(([name, value]) => [name, Number(value)]);
  return {
    ...size,
    ...(require.length ? { require: Object.fromEntries(require) } : {}),
    ...(resources.length ? { resources: Object.fromEntries(resources) } : {}),
    ...(query.get("spread") ? { spread: spreadOf(query) } : {}),
  };
}

/** @param {URLSearchParams} query */
function spreadOf(query) {
  const bound = query.get("skew") ? { skew: Number(query.get("skew")) } : { max: Number(query.get("max") || 1) };
  return { key: query.get("spread"), over: query.get("over") || "node", ...bound };
}

/** The address that asks for the same as a hint. @param {any} hint @returns {Record<string, any>} */
export function askedAgain({ template_id, cpu_count, memory_mb, images, require, resources, spread }) {
  const size = template_id ? { template: template_id } : { cpu: cpu_count, memory: memory_mb, image: images?.[0] };
  const { key, over, max, skew } = spread ?? {};
  return { ...size, require: saidPairs(require), resources: saidPairs(resources), spread: key, over, max, skew };
}
