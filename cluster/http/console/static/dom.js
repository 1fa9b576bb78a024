// DOM builder and patcher: functions that create elements, and a patch that updates the page in place, node by node.
// Text always becomes a text node, so that user data cannot inject markup.

const SVG = "http://www.w3.org/2000/svg";
const HANDLERS = ["onclick", "onsubmit", "oninput", "onchange", "onpointermove", "onpointerleave", "ontoggle"];
const putOff = new WeakMap();
// Attributes that the user controls: a patch does not remove them, so that open elements stay open.
const THE_READERS = { DETAILS: "open", DIALOG: "open" };

/** Create an HTML element. Null and false attributes are omitted; functions become event handlers. */
export function h(tag, attributes, ...children) {
  return filled(document.createElement(tag), attributes, children);
}

/** Create an SVG element, with the same rules as `h`. */
export function s(tag, attributes, ...children) {
  return filled(document.createElementNS(SVG, tag), attributes, children);
}

/** Defer an element's content: `patch` calls `make` only if the page does not show the same `version`, a string. */
export function kept(element, version, make) {
  element.dataset.kept = "";
  putOff.set(element, { version, make });
  return element;
}

/** Make `children` the children of `parent`. Matching nodes are reused, which keeps focus, selection and scroll.
 * Elements match by `data-key`; nodes without a key match by position and node name. */
export function patch(parent, ...children) {
  const wanted = nodes(children);
  const keys = new Set(wanted.map(keyOf).filter(Boolean));
  const known = new Map();
  for (const child of [...parent.childNodes]) {
    const key = keyOf(child);
    if (key && keys.has(key)) known.set(key, child);
    else if (key) child.remove();
  }
  wanted.forEach((node, at) => {
    const here = parent.childNodes[at] ?? null;
    const key = keyOf(node);
    const same = key ? known.get(key) : here && !keyOf(here) && here.nodeName === node.nodeName ? here : undefined;
    if (same === undefined) {
      parent.insertBefore(made(node), here);
      return;
    }
    if (same !== here) parent.insertBefore(same, here);
    become(same, node);
  });
  while (parent.childNodes.length > wanted.length) parent.lastChild.remove();
}

function become(now, wanted) {
  if (now.nodeType === Node.TEXT_NODE) {
    if (now.nodeValue !== wanted.nodeValue) now.nodeValue = wanted.nodeValue;
    return;
  }
  const content = putOff.get(wanted);
  if (content !== undefined) {
    if (putOff.get(now)?.version === content.version) return;
    putOff.set(now, content);
    made(wanted);
  }
  for (const { name } of [...now.attributes]) {
    if (!wanted.hasAttribute(name) && THE_READERS[now.nodeName] !== name) now.removeAttribute(name);
  }
  for (const { name, value } of wanted.attributes) {
    if (now.getAttribute(name) !== value) now.setAttribute(name, value);
  }
  for (const handler of HANDLERS) now[handler] = wanted[handler];
  patch(now, ...wanted.childNodes);
}

/** Build the deferred content of a node and its descendants. Return the node. */
function made(node) {
  const waiting = node.nodeType === Node.ELEMENT_NODE ? [node, ...node.querySelectorAll("[data-kept]")] : [];
  for (const element of waiting.filter((each) => putOff.has(each))) {
    element.replaceChildren(...nodes([putOff.get(element).make()]));
  }
  return node;
}

function filled(element, attributes, children) {
  for (const [name, value] of Object.entries(attributes ?? {})) {
    if (typeof value === "function") element[name] = value;
    else if (value !== null && value !== undefined && value !== false)
      element.setAttribute(name, value === true ? "" : value);
  }
  element.append(...nodes(children));
  return element;
}

function nodes(children) {
  return children
    .flat(Infinity)
    .filter((child) => child !== null && child !== undefined && child !== false)
    .map((child) => (child instanceof Node ? child : document.createTextNode(String(child))));
}

function keyOf(node) {
  return node.dataset?.key;
}
