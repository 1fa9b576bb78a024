// Elements made by plain calls, and a patch that turns what is on the page into what should be there, node by node.
// Text is only ever a text node: nothing that a user wrote can become markup.

const SVG = "http://www.w3.org/2000/svg";
const HANDLERS = ["onclick", "onsubmit", "oninput", "onchange", "onpointermove", "onpointerleave", "ontoggle"];
const putOff = new WeakMap();
// What the reader has opened stays open.
const THE_READERS = { DETAILS: "open", DIALOG: "open" };

/** An HTML element. Attributes that are null or false are left out; functions are handlers. */
export function h(tag, attributes, ...children) {
  return filled(document.createElement(tag), attributes, children);
}

/** The same for SVG. */
export function s(tag, attributes, ...children) {
  return filled(document.createElementNS(SVG, tag), attributes, children);
}

/** Put off what stands in an element: `make` is called only if it is not on the page with the same `version`, a text. */
export function kept(element, version, make) {
  element.dataset.kept = "";
  putOff.set(element, { version, make });
  return element;
}

/** Make these the children of `parent`. Nodes that are there already stay, and with them focus, selection and scroll.
 * Elements with the same `data-key` are the same element; others are by place and kind. */
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

/** With everything that was put off within. */
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
