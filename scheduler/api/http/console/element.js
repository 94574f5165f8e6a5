// Elements of the page: made from plain calls, and brought up to date in place.
//
// A view builds what the page should be; `update` changes the page to that. Elements stay the same objects, so the
// keyboard's focus, a text being typed, a selection and the scroll position survive every reading of the ledger.

/** @typedef {Node | string | number | null | undefined | false} Child */
/** @typedef {Record<string, string | number | boolean | null | undefined | ((event: any) => void)>} Attributes */

const SVG = "http://www.w3.org/2000/svg";
const SVG_TAGS = new Set(["svg", "path", "rect", "line", "circle", "polyline", "g"]);

/** Listeners by element and type; those of the newest description apply. @type {WeakMap<Element, Map<string, Function>>} */
const listeners = new WeakMap();

/**
 * An element. `onclick` and the like take functions, `true` sets an attribute without value, null leaves it out;
 * `key` names the element among its siblings.
 * @param {string} tag @param {Attributes} [attributes] @param {...(Child | Child[])} children
 * @returns {any}
 */
export function make(tag, attributes = {}, ...children) {
  const element = SVG_TAGS.has(tag) ? document.createElementNS(SVG, tag) : document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (typeof value === "function") listen(element, name.slice(2), value);
    else if (name === "key") element.setAttribute("data-key", String(value));
    else if (value === true) element.setAttribute(name, "");
    else if (value !== null && value !== undefined && value !== false) element.setAttribute(name, String(value));
  }
  for (const child of children.flat()) {
    if (child === null || child === undefined || child === false) continue;
    element.append(child instanceof Node ? child : String(child));
  }
  return element;
}

/** @param {Element} element @param {string} type @param {Function} listener */
function listen(element, type, listener) {
  const known = listeners.get(element) ?? new Map();
  listeners.set(element, known.set(type, listener));
  element.addEventListener(type, call);
}

/** @param {Event} event */
function call(event) {
  const element = /** @type {Element} */ (event.currentTarget);
  listeners.get(element)?.get(event.type)?.(event);
}

/**
 * Change the parent's content to these children, keeping the elements that are still there. What is drawn, not made of
 * elements, is asked to draw itself: a canvas has a listener `ondraw`.
 * @param {Element} parent @param {...(Child | Child[])} children
 */
export function update(parent, ...children) {
  updateChildren(parent, make("div", {}, ...children));
  for (const canvas of parent.querySelectorAll("canvas")) canvas.dispatchEvent(new Event("draw"));
}

/** @param {Element} parent @param {Element} wanted */
function updateChildren(parent, wanted) {
  const keyed = new Map([...parent.children].flatMap((child) => (keyOf(child) ? [[keyOf(child), child]] : [])));
  let present = parent.firstChild;
  for (const child of [...wanted.childNodes]) {
    const named = keyed.get(keyOf(child));
    if (named && named !== present) {
      parent.insertBefore(named, present);
      present = named;
    }
    if (present && isSame(present, child)) {
      const next = present.nextSibling;
      updateNode(present, child);
      present = next;
    } else {
      parent.insertBefore(child, present);
    }
  }
  while (present) {
    const next = present.nextSibling;
    present.remove();
    present = next;
  }
}

/** @param {Node} node */
function keyOf(node) {
  return node instanceof Element ? node.getAttribute("data-key") : null;
}

/** @param {Node} one @param {Node} other */
function isSame(one, other) {
  return one.nodeName === other.nodeName && keyOf(one) === keyOf(other);
}

/** @param {Node} present @param {Node} wanted */
function updateNode(present, wanted) {
  if (!(present instanceof Element) || !(wanted instanceof Element)) {
    if (present.nodeValue !== wanted.nodeValue) present.nodeValue = wanted.nodeValue;
    return;
  }
  for (const { name } of [...present.attributes]) {
    // A person opened or closed these; the description only says how they begin.
    if (!wanted.hasAttribute(name) && name !== "open") present.removeAttribute(name);
  }
  for (const { name, value } of wanted.attributes) {
    if (present.getAttribute(name) !== value && name !== "open") present.setAttribute(name, value);
  }
  const described = listeners.get(wanted);
  for (const [type, listener] of described ?? []) listen(present, type, listener);
  if (present instanceof HTMLCanvasElement) return;
  updateChildren(present, wanted);
}
