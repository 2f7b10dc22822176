// What the page asks of the coordinator. All of it is on the same origin.

/** Follows how the cluster stands; `lost` is called when the coordinator does not answer (any more). */
export function follow({ history, state, lost }) {
  const source = new EventSource("/page/api/events");
  source.addEventListener("history", (event) => history(JSON.parse(event.data)));
  source.addEventListener("state", (event) => state(JSON.parse(event.data)));
  source.addEventListener("error", () => {
    lost();
    if (source.readyState === EventSource.CLOSED) {
      setTimeout(() => follow({ history, state, lost }), 3000);
    }
  });
}

/** POSTs JSON; throws an Error that says what the server says. */
export async function post(path, body = {}, signal = undefined) {
  const response = await fetch(path, {
    method: "POST",
    headers: { "Content-Type": "application/json" },
    body: JSON.stringify(body),
    signal,
  });
  if (!response.ok) throw new Error(await whatWasSaid(response));
  return response;
}

/** Asks for the next turn of a chat; `onDelta` gets each part of it. Returns why it ended. */
export async function chat(body, signal, onDelta) {
  const response = await post("/v1/chat/completions", { ...body, stream: true }, signal);
  let reason = null;
  for await (const data of eventsOf(response.body)) {
    if (data === "[DONE]") return reason;
    const chunk = JSON.parse(data);
    if (chunk.error) throw new Error(chunk.error.message);
    const [choice] = chunk.choices;
    if (!choice) continue;
    if (choice.delta) onDelta(choice.delta);
    reason = choice.finish_reason ?? reason;
  }
  return reason;
}

async function* eventsOf(stream) {
  const reader = stream.pipeThrough(new TextDecoderStream()).getReader();
  let text = "";
  for (;;) {
    const { value, done } = await reader.read();
    if (done) return;
    text += value;
    const lines = text.split("\n");
    text = lines.pop();
    for (const line of lines) {
      if (line.startsWith("data: ")) yield line.slice(6);
    }
  }
}

async function whatWasSaid(response) {
  try {
    return (await response.json()).error.message;
  } catch {
    return `The coordinator answered ${response.status}.`;
  }
}
