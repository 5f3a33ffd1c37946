// Elements of pages, of HTML and of SVG.

export const $ = (id) => document.getElementById(id);

// Attributes that begin with "on" are listeners; true, false and undefined are those without a value, and those that are not there.
export function make(tag, attributes = {}, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else if (value === true) element.setAttribute(name, "");
    else if (value !== false && value !== undefined) element.setAttribute(name, value);
  }
  element.append(...children.filter((each) => each !== null));
  return element;
}

export function draw(tag, attributes = {}, ...children) {
  const element = document.createElementNS("http://www.w3.org/2000/svg", tag);
  for (const [name, value] of Object.entries(attributes)) element.setAttribute(name, value);
  element.append(...children);
  return element;
}

let tips = 0;

// The tip of the arrows of a picture, of a kind; returns the reference to it.
export function addTip(svg, kind = "") {
  const id = `tip-${++tips}`;
  const size = { viewBox: "0 0 8 8", refX: 7, refY: 4, markerWidth: 7, markerHeight: 7, orient: "auto" };
  svg.append(draw("defs", {}, draw("marker", { id, class: `tip ${kind}`, ...size }, draw("path", { d: "M0 0 8 4 0 8Z" }))));
  return `url(#${id})`;
}
