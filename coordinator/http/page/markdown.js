// Markdown as elements. No HTML is read: what looks like it in an answer is shown as it stands.

import { copies, h } from "./dom.js";

const FENCE = /^\s*(`{3,}|~{3,})\s*([^\s`]*)/;
const HEADING = /^(#{1,6})\s+(.*)$/;
const ITEM = /^(\s*)([-*+]|\d{1,9}[.)])\s+(.*)$/;
const RULE = /^\s*([-*_])(\s*\1){2,}\s*$/;
const QUOTE = /^\s*>\s?/;
const CELL_RULE = /^\s*:?-+:?\s*$/;
// Every repeat is bounded: an answer is read anew with each part of it that comes, however odd it is.
const INLINE =
  /(`{1,8})([^`].{0,1000}?)\1(?!`)|\*\*(?=\S)(.{1,1000}?)\*\*|__(?=\S)(.{1,1000}?)__|~~(?=\S)(.{1,1000}?)~~|\*(?=\S)([^*]{1,1000}?)\*|\b_(?=\S)([^_]{1,1000}?)_\b|!?\[([^[\]]{0,500})\]\(\s{0,9}<?([^\s<>()]{1,2048})>?(?:\s[^()\n]{0,200})?\)|(https?:\/\/[^\s<>"')\]]{1,2048})/s;
const DEEPEST = 6;

/** The elements of a text. */
export function markdown(text, depth = 0) {
  const lines = text.split("\n");
  const found = [];
  let at = 0;
  while (at < lines.length) {
    const [element, next] = block(lines, at, depth);
    if (element) found.push(element);
    at = next;
  }
  return found;
}

function block(lines, at, depth) {
  const line = lines[at];
  if (!line.trim()) return [null, at + 1];
  const fence = FENCE.exec(line);
  if (fence) return fenced(lines, at, fence);
  const heading = HEADING.exec(line);
  if (heading) return [h(`h${Math.min(6, heading[1].length + 2)}`, { dir: "auto" }, ...inline(heading[2].trim())), at + 1];
  if (RULE.test(line)) return [h("hr"), at + 1];
  if (QUOTE.test(line) && depth < DEEPEST) return quoted(lines, at, depth);
  if (ITEM.test(line) && depth < DEEPEST) return listed(lines, at, depth);
  if (line.includes("|") && isTableRule(lines[at + 1] ?? "")) return tabled(lines, at);
  return paragraph(lines, at);
}

function fenced(lines, at, [, fence, language]) {
  let end = at + 1;
  while (end < lines.length && !lines[end].trim().startsWith(fence)) end += 1;
  const code = lines.slice(at + 1, end).join("\n");
  const copy = copies(h("button", { type: "button" }, "Copy"), code);
  const bar = h("div", { class: "bar" }, h("span", {}, language || "code"), copy);
  return [h("div", { class: "code" }, bar, h("pre", { tabindex: "0", dir: "ltr" }, h("code", {}, code))), end + 1];
}

function quoted(lines, at, depth) {
  let end = at;
  while (end < lines.length && QUOTE.test(lines[end])) end += 1;
  const inner = lines.slice(at, end).map((line) => line.replace(QUOTE, ""));
  return [h("blockquote", { dir: "auto" }, ...markdown(inner.join("\n"), depth + 1)), end];
}

function listed(lines, at, depth) {
  const [, indent, mark] = ITEM.exec(lines[at]);
  const isNumbered = /\d/.test(mark);
  const items = [];
  let end = at;
  while (end < lines.length) {
    const item = ITEM.exec(lines[end]);
    if (item && item[1].length <= indent.length + 1 && /\d/.test(item[2]) === isNumbered) {
      items.push([item[3]]);
    } else if (items.length && (/^\s/.test(lines[end]) || item) && lines[end].trim()) {
      items.at(-1).push(lines[end].slice(Math.min(indent.length + mark.length + 1, lines[end].search(/\S/))));
    } else if (!lines[end].trim() && /^\s+\S/.test(lines[end + 1] ?? "")) {
      items.at(-1).push("");
    } else {
      break;
    }
    end += 1;
  }
  const start = isNumbered ? { start: parseInt(mark, 10) } : {};
  const parts = items.map((item) => h("li", { dir: "auto" }, ...loose(markdown(item.join("\n"), depth + 1))));
  return [h(isNumbered ? "ol" : "ul", start, ...parts), end];
}

/** An item with one paragraph has its words without the paragraph. */
function loose(elements) {
  return elements.flatMap((element) => (element.tagName === "P" ? [...element.childNodes] : [element]));
}

function isTableRule(line) {
  return line.includes("-") && cellsOf(line).every((cell) => CELL_RULE.test(cell));
}

function cellsOf(line) {
  const row = line.trim();
  return row.slice(row.startsWith("|") ? 1 : 0, row.endsWith("|") ? -1 : undefined).split("|");
}

function tabled(lines, at) {
  let end = at + 2;
  while (end < lines.length && lines[end].includes("|") && lines[end].trim()) end += 1;
  const cells = (line, tag) => cellsOf(line).map((cell) => h(tag, { dir: "auto" }, ...inline(cell.trim())));
  const head = h("thead", {}, h("tr", {}, ...cells(lines[at], "th")));
  const rows = lines.slice(at + 2, end).map((line) => h("tr", {}, ...cells(line, "td")));
  return [h("div", { class: "wide" }, h("table", {}, head, h("tbody", {}, ...rows))), end];
}

function paragraph(lines, at) {
  let end = at + 1;
  const begins = (line) => !line.trim() || FENCE.test(line) || HEADING.test(line) || ITEM.test(line) || QUOTE.test(line);
  while (end < lines.length && !begins(lines[end])) end += 1;
  return [h("p", { dir: "auto" }, ...inline(lines.slice(at, end).join("\n"))), end];
}

function inline(text, depth = 0) {
  const found = [];
  let rest = text;
  for (let match; depth < DEEPEST && (match = INLINE.exec(rest)); ) {
    if (match.index) found.push(rest.slice(0, match.index));
    found.push(element(match, depth + 1));
    rest = rest.slice(match.index + match[0].length);
  }
  if (rest) found.push(rest);
  return found;
}

function element([whole, , code, bold, bold2, struck, italic, italic2, label, target, address], depth) {
  if (code !== undefined) return h("code", { dir: "ltr" }, code.trim() || code);
  if (bold ?? bold2) return h("strong", {}, ...inline(bold ?? bold2, depth));
  if (struck) return h("del", {}, ...inline(struck, depth));
  if (italic ?? italic2) return h("em", {}, ...inline(italic ?? italic2, depth));
  if (target !== undefined) return link(target, label || target) ?? whole;
  const end = address.length - /[.,;:!?]{0,9}$/.exec(address)[0].length; // a sentence ends behind an address
  return h("span", {}, link(address.slice(0, end), address.slice(0, end)), address.slice(end));
}

/** A link to another place; pictures are links too, so that nothing is fetched because a model says so. */
function link(target, label) {
  if (!/^(https?:|mailto:)/i.test(target)) return null;
  return h("a", { href: target, target: "_blank", rel: "noopener noreferrer" }, label);
}
