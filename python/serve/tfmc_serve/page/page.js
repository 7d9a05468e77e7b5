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
    const read = 'tfmc_tokens_total{kind="prompt"}', table = at("live");
    table.querySelector("tbody").replaceChildren();
    row(table, ["rows waiting", now.tfmc_waiting]);
    row(table, ["rows running", now.tfmc_rows_running]);
    if (before) {
      const runs = now.tfmc_batch_rows_count - before.tfmc_batch_rows_count;
      row(table, ["tokens a second", Math.round((now[read] - before[read]) / (now.time - before.time))]);
      row(table, ["rows of a run", runs ? ((now.tfmc_batch_rows_sum - before.tfmc_batch_rows_sum) / runs).toFixed(1) : "-"]);
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
      row(at("models"), [model.name, model.kind, model.max_length, model.dimension || model.labels.length]);
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
begin();
