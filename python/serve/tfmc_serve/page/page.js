"use strict";
// What the page shows is what any client gets: /info, /metrics, and answers of the routes.

const at = id => document.getElementById(id);

async function ask(path, body) {
  const made = await fetch(path, body && {
    method: "POST", headers: {"content-type": "application/json"}, body: JSON.stringify(body)});
  const answer = await made.json();
  if (!made.ok) throw new Error(answer.error.message || answer.error);
  return answer;
}

function row(table, cells) {
  const line = table.querySelector("tbody").insertRow();
  for (const cell of cells) line.insertCell().textContent = cell;
}

function list(place, lines) {
  place.replaceChildren(...lines.map(text => Object.assign(document.createElement("li"), {textContent: text})));
}

async function show(place, work) {
  try {
    list(place, await work());
    place.className = "";
  } catch (error) {
    list(place, [error.message]);
    place.className = "error";
  }
}

const texts = () => at("texts").value.split("\n").filter(line => line.trim());

function search() {
  return show(at("found"), async () => {
    const scores = await ask("/similarity", {
      inputs: {source_sentence: at("question").value, sentences: texts()}, parameters: {truncate: true}});
    return texts().map((text, i) => [scores[i], text]).sort((a, b) => b[0] - a[0])
      .map(([score, text]) => `${score.toFixed(3)} ${text}`);
  });
}

function rank() {
  return show(at("ranked"), async () => {
    const hits = await ask("/rerank", {query: at("question").value, texts: texts(), return_text: true, truncate: true});
    return hits.map(hit => `${hit.score.toFixed(3)} ${hit.text}`);
  });
}

let writing = null;

// The text of a stream's events, piece by piece.
async function* pieces(body) {
  const reader = body.pipeThrough(new TextDecoderStream()).getReader();
  let text = "";
  for (let part; !(part = await reader.read()).done;) {
    text += part.value;
    for (let end; (end = text.indexOf("\n\n")) >= 0; text = text.slice(end + 2)) {
      const line = text.slice(0, end);
      if (!line.startsWith("data: ") || line === "data: [DONE]") continue;
      const event = JSON.parse(line.slice(6));
      if (event.error) throw new Error(event.error.message);
      for (const choice of event.choices) yield choice.text;
    }
  }
}

async function write() {
  const place = at("written");
  place.textContent = "";
  place.className = "";
  writing = new AbortController();
  at("go").disabled = !(at("stop").disabled = false);
  try {
    const schema = at("schema").value.trim();
    const made = await fetch("/v1/completions", {
      method: "POST", headers: {"content-type": "application/json"}, signal: writing.signal,
      body: JSON.stringify({prompt: at("prompt").value, max_tokens: Number(at("tokens").value), stream: true,
        temperature: Number(at("temperature").value), seed: Number(at("seed").value),
        ...(schema && {grammar: {json_schema: JSON.parse(schema)}})})});
    if (!made.ok) throw new Error((await made.json()).error.message);
    for await (const piece of pieces(made.body)) place.textContent += piece;
  } catch (error) {
    if (error.name !== "AbortError") {
      place.textContent += `\n${error.message}`;
      place.className = "error";
    }
  }
  at("go").disabled = !(at("stop").disabled = true);
}

let before = null;

function numbers(text) {
  const found = {};
  for (const line of text.split("\n")) {
    const parts = line.match(/^(tfmc_\w+|process_resident_memory_bytes)(\{[^}]*\})? (\S+)$/);
    if (parts) found[parts[1] + (parts[2] || "")] = Number(parts[3]);
  }
  return found;
}

async function live() {
  try {
    const now = numbers(await (await fetch("/metrics")).text());
    now.time = performance.now() / 1000;
    const of = kind => now[`tfmc_tokens_total{kind="${kind}"}`] - before[`tfmc_tokens_total{kind="${kind}"}`];
    const share = (part, whole) => whole ? `${Math.round(100 * part / whole)} %` : "-";
    const table = at("live");
    table.querySelector("tbody").replaceChildren();
    row(table, ["rows waiting", now.tfmc_waiting]);
    row(table, ["rows running", now.tfmc_rows_running]);
    if (before) {
      const runs = now.tfmc_batch_rows_count - before.tfmc_batch_rows_count;
      const seconds = now.time - before.time;
      row(table, ["tokens read a second", Math.round(of("prompt") / seconds)]);
      row(table, ["tokens written a second", Math.round(of("written") / seconds)]);
      row(table, ["of prompts, known before", share(of("cached"), of("cached") + of("prompt"))]);
      row(table, ["of guesses, right", share(of("right"), of("guessed"))]);
      row(table, ["rows of a run or step", runs ? ((now.tfmc_batch_rows_sum - before.tfmc_batch_rows_sum) / runs).toFixed(1) : "-"]);
    }
    row(table, ["memory", `${Math.round(now.process_resident_memory_bytes / 1e6)} MB`]);
    before = now;
  } finally {
    setTimeout(live, 1000);
  }
}

async function begin() {
  try {
    const info = await ask("/info");
    at("state").textContent = `version ${info.version}, ${info.threads} threads` +
      (info.keys ? "" : "; no keys: everybody who reaches this address may use it");
    for (const model of info.models) {
      row(at("models"), [model.name, model.kind, model.max_length, model.dimension || (model.labels ? model.labels.length : model.vocab)]);
      if (at(model.kind)) at(model.kind).hidden = false;
    }
    at("embed").hidden = !info.models.some(model => model.kind === "embed" || model.kind === "rerank");
    at("search").hidden = !info.models.some(model => model.kind === "embed");
  } catch (error) {
    at("state").textContent = error.message;
    setTimeout(begin, 1000);
    return;
  }
  live();
}

at("search").addEventListener("click", search);
at("rank").addEventListener("click", rank);
at("go").addEventListener("click", write);
at("stop").addEventListener("click", () => writing.abort());
begin();
