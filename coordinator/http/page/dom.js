// Elements out of plain calls. Text is always text: nothing here, or on the whole page, reads HTML.

const SVG = "http://www.w3.org/2000/svg";

/** An element with attributes, or listeners named on…, and children: elements or texts. */
export function h(tag, attributes = {}, ...children) {
  return filled(document.createElement(tag), attributes, children);
}

/** The same, of SVG. */
export function s(tag, attributes = {}, ...children) {
  return filled(document.createElementNS(SVG, tag), attributes, children);
}

/** The element of that id. */
export function at(id) {
  return document.getElementById(id);
}

/** Shows `build()` in `place` unless what it was built from is as it was: so nothing flickers or loses the focus. */
export function show(place, from, build) {
  const told = JSON.stringify(from);
  if (place.dataset.told === told) return;
  place.dataset.told = told;
  place.replaceChildren(...[build()].flat());
}

/** Changes a text only if it is another. */
export function tell(place, text) {
  if (place.textContent !== text) place.textContent = text;
}

/** A button that copies a text. */
export function copies(button, text) {
  button.addEventListener("click", async () => {
    try {
      await navigator.clipboard.writeText(typeof text === "function" ? text() : text);
      said(button, "Copied");
    } catch {
      said(button, "Select and copy it by hand");
    }
  });
  return button;
}

function said(button, word) {
  const before = button.dataset.word ?? button.textContent;
  button.dataset.word = before;
  button.textContent = word;
  setTimeout(() => (button.textContent = before), 1500);
}

function filled(element, attributes, children) {
  for (const [name, value] of Object.entries(attributes)) {
    if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else if (value === true) element.setAttribute(name, "");
    else if (value !== false && value !== null && value !== undefined) element.setAttribute(name, value);
  }
  element.append(...children.flat().filter((child) => child !== null && child !== undefined && child !== false));
  return element;
}
