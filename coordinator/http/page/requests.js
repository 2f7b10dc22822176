// The requests that run, each with a button that stops it.

import { at, h, tell } from "./dom.js";
import { post } from "./server.js";
import { number, seconds } from "./words.js";

const rows = new Map();

/** Shows the requests of a state. */
export function showRequests(state) {
  const running = (state.stats?.requests ?? []).filter((request) => request.state !== "ended");
  const numbers = new Set(running.map((request) => request.number));
  for (const [key, row] of rows) {
    if (!numbers.has(key)) {
      row.element.remove();
      rows.delete(key);
    }
  }
  for (const request of [...running].reverse()) {
    const row = rows.get(request.number) ?? begun(request.number);
    const words = [
      String(request.number),
      request.state,
      `${request.prompt_tokens} tokens`,
      `${number(request.completion_tokens)} tokens`,
      seconds(request.age_s),
      seconds(request.first_token_s),
    ];
    words.forEach((text, index) => tell(row.cells[index], text));
  }
  at("no-requests").hidden = running.length > 0;
  at("request-table").hidden = running.length === 0;
}

function begun(request) {
  const cells = Array.from({ length: 6 }, () => h("td", { class: "number" }));
  const stop = h("button", { type: "button", "aria-label": `Stop request ${request}` }, "Stop");
  stop.addEventListener("click", async () => {
    stop.disabled = true;
    try {
      await post(`/page/api/requests/${request}/stop`);
    } catch (error) {
      stop.title = error.message;
      stop.disabled = false;
    }
  });
  const element = h("tr", {}, ...cells, h("td", {}, stop));
  at("request-rows").prepend(element);
  const row = { element, cells };
  rows.set(request, row);
  return row;
}
