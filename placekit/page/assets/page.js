// The page: a form that is the address, answers of the server, and a picture whose borders can be dragged.
"use strict";

const $ = (id) => document.getElementById(id);
const COLOURS = ["#2f5f9e", "#a8480f", "#2b7548", "#7a4fa3", "#85560a", "#0f6f82", "#b0305c", "#5a5f66"];
const FIELDS = ["model", "precision", "runtime", "context", "processor", "link", "prompt", "generated", "sequences", "cache_precision"];
const NUMBERS = ["context", "prompt", "generated", "sequences"];
const START = { model: "llama3-70b", precision: "q4_k_m", cards: "RTX 4090, RTX 3090", ram: "64 GB DDR5-5600 x2", runtime: "llama.cpp", context: 8192 };
const RAM = ["DDR3-1600", "DDR4-2666", "DDR4-3200", "DDR5-4800", "DDR5-5600", "DDR5-6000", "DDR5-6400", "LPDDR5X-7500", "LPDDR5X-8533"];
const COMPARED = ["q3_k_m", "iq4_xs", "q4_k_m", "q5_k_m", "q6_k", "q8_0", "f16"];
const ANSWERS = globalThis.ANSWERS;
const kept = new Map(); // headers of dropped models by id, for a server that was started again
let cards = []; // [name, count]
let best = null; // the answer, whose blocks are those of the best plan
let mine = null; // blocks of a split that was dragged
let known = { card: {} };

// ---------------------------------------------------------------- small helpers

function make(tag, attributes = {}, ...inner) {
  const made = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (name.startsWith("on")) made.addEventListener(name.slice(2), value);
    else if (value !== null && value !== false) made.setAttribute(name, value);
  }
  made.append(...inner);
  return made;
}
const gib = (bytes) => `${(bytes / 2 ** 30).toFixed(bytes < 2 ** 30 * 9.95 ? 1 : 0)} GiB`;
const rate = (value) => value >= 100 ? Math.round(value).toLocaleString("en") : value.toPrecision(3);
const range = (speed) => speed.least ? `${rate(speed.least)} to ${rate(speed.most)}` : "";
const seconds = (value) => value === null ? "-" : value < 1e-3 ? `${(value * 1e6).toPrecision(3)} us` : value < 1 ? `${(value * 1e3).toPrecision(3)} ms` : `${value.toPrecision(3)} s`;
const speedOf = (told, what) => told.speeds?.[what]?.rate;

function later(work, delay) {
  let timer = 0;
  return () => { clearTimeout(timer); timer = setTimeout(work, delay); };
}

class Failed extends Error { constructor(told) { super(told.error); this.field = told.field; } }

async function send(path, body, signal) {
  if (ANSWERS) return ANSWERS[$("asked").value].answer;
  const got = await fetch(path, { method: "POST", body, signal }).catch((error) => { if (error.name !== "AbortError") gone(); throw error; });
  $("gone").hidden = true;
  const told = await got.json();
  if (got.ok) return told;
  const lost = /@/.test($("model").value) && kept.get($("model").value);
  if (told.field === "model" && lost) { // a server that was started again
    kept.delete($("model").value);
    await dropModel(lost.name, lost.header);
    return send(path, body, signal);
  }
  throw new Failed(told);
}

function gone() {
  $("gone").replaceChildren("The server has ended. Start `placekit page` again, then: ", make("button", { type: "button", onclick: () => ask() }, "Try again"));
  $("gone").hidden = false;
}

function blame(field, message) { // writes an error beside the field that caused it
  const at = { cards: "cards-field", ram: "ram-field", file: "any-file", split: "strip", goal: "runtime" }[field] ?? (field && $(field) ? field : "model");
  const control = at === "cards-field" ? $("card") : at === "ram-field" ? $("ram-size") : $(at);
  control.setAttribute("aria-invalid", "true");
  control.setAttribute("aria-describedby", "error");
  control.closest("details:not([open])")?.setAttribute("open", "");
  (at.endsWith("-field") ? $(at) : control.parentElement).append(make("p", { class: "error", id: "error", role: "alert" }, message));
}
function unblame() {
  $("error")?.remove();
  document.querySelectorAll("[aria-invalid]").forEach((each) => ["aria-invalid", "aria-describedby"].forEach((name) => each.removeAttribute(name)));
}

// ---------------------------------------------------------------- the question: form and address

const cardText = (list) => list.filter(([, count]) => count).map(([name, count]) => count > 1 ? `${count}x ${name}` : name).join(", ");

function question() {
  const asked = { cards: cardText(cards) };
  for (const name of FIELDS) {
    const value = $(name).value.trim();
    if (value) asked[name] = NUMBERS.includes(name) ? Number(value) : value;
  }
  if (asked.model?.endsWith(".gguf") || asked.model?.includes(".gguf@")) delete asked.precision;
  if (Number($("ram-size").value)) asked.ram = `${$("ram-size").value} GB ${$("ram-type").value} x${$("ram-channels").value}`;
  return asked;
}

function choose(select, value) { // also a value that is not in the list
  if (value && ![...select.options].some((each) => each.value === value)) select.append(make("option", {}, value));
  select.value = value ?? "";
}

function fill(asked) {
  for (const name of FIELDS) $(name).tagName === "SELECT" ? choose($(name), asked[name]) : $(name).value = asked[name] ?? "";
  cards = (asked.cards ?? "").split(",").map((each) => each.trim()).filter(Boolean).map((each) => {
    const several = each.match(/^(\d+)\s*[x*]\s+(.*)$/);
    return several ? [several[2], Number(several[1])] : [each, 1];
  });
  const ram = (asked.ram ?? "").match(/^([\d.]+)\s*(?:GB\s+)?(\S+?)(?:\s*x(\d+))?$/);
  $("ram-size").value = ram?.[1] ?? "";
  choose($("ram-type"), ram?.[2] ?? "DDR5-5600");
  choose($("ram-channels"), ram?.[3] ?? "2");
  showCards();
}

const isFiles = () => $("tab-file").getAttribute("aria-pressed") === "true";
function writeAddress() {
  const asked = { ...question(), ...(isFiles() ? { page: "file" } : {}) };
  history.replaceState(null, "", "#" + new URLSearchParams(asked).toString());
}
function readAddress() {
  const asked = Object.fromEntries(new URLSearchParams(location.hash.slice(1)));
  show(asked.page === "file");
  delete asked.page;
  fill(Object.keys(asked).length ? asked : START);
}

function showCards() {
  const change = (at, by) => () => {
    cards[at][1] += by;
    cards = cards.filter(([, count]) => count);
    showCards();
    changed();
    (document.querySelectorAll("#cards li button")[2 * at] ?? $("card")).focus();
  };
  $("cards").replaceChildren(...cards.map(([name, count], at) => make("li", {},
    make("span", {}, name, known.card[name] ? ` (${gib(known.card[name])})` : ""),
    make("button", { type: "button", "aria-label": `One ${name} less`, onclick: change(at, -1) }, "−"),
    make("b", {}, String(count)),
    make("button", { type: "button", "aria-label": `One ${name} more`, onclick: change(at, 1) }, "+"))));
}

function addCard() {
  const name = $("card").value.trim().replaceAll(",", " ");
  if (!name) return;
  const there = cards.find((each) => each[0] === name);
  there ? there[1]++ : cards.push([name, 1]);
  $("card").value = "";
  showCards();
  changed();
}

function show(files) {
  $("tab-llm").setAttribute("aria-pressed", String(!files));
  $("tab-file").setAttribute("aria-pressed", String(files));
  document.querySelectorAll(".llm").forEach((each) => each.hidden = files || (each.id === "answer" && !best));
  document.querySelectorAll(".file").forEach((each) => each.hidden = !files);
}

// ---------------------------------------------------------------- the answer

let asking = new AbortController();
async function ask() {
  if (isFiles()) return;
  asking.abort();
  asking = new AbortController();
  $("answer").setAttribute("aria-busy", "true");
  try {
    const told = await send("plan", JSON.stringify(question()), asking.signal);
    unblame();
    [best, mine] = [told, null];
    showAnswer();
  } catch (error) {
    if (error.name === "AbortError") return;
    unblame();
    if (error instanceof Failed) blame(error.field, error.message);
  }
  $("answer").removeAttribute("aria-busy");
}
const askSoon = later(ask, 150);
function changed() { writeAddress(); askSoon(); }

function showAnswer() {
  $("answer").hidden = false;
  $("verdict").textContent = best.verdict;
  $("launch-box").hidden = !best.launch.length;
  for (const name of ["launch", "command", "python"]) $(name).textContent = [best[name]].flat().join("\n");
  const told = [["Prompt", "prompt"], ["Generated", "generated"]].filter(([, what]) => speedOf(best, what)).map(([name, what]) =>
    [name, `${rate(speedOf(best, what))} tokens/s`, best.speeds[what].least ? `two of three such measurements: ${range(best.speeds[what])}` : "no range: nothing like this was measured"]);
  const { longest, limit } = best.context;
  if (longest) told.push(["Longest context", `${longest.toLocaleString("en")} tokens`, longest === limit ? "the model's own limit" : "on these devices as planned"]);
  $("numbers").replaceChildren(...told.map(([name, value, more]) => make("div", {}, make("dt", {}, name), make("dd", {}, value, make("small", {}, more)))));
  showSlider();
  $("picture").hidden = !best.blocks;
  if (best.blocks) showPicture(best);
  for (const id of Object.keys(tables)) if ($(id).open) tables[id]();
}

let steps = [];
function showSlider() {
  const { planned, longest, limit } = best.context;
  const most = Math.max(limit ?? 2 ** 17, planned, longest ?? 0);
  steps = [];
  for (let step = 1024; step < most; step *= 2) steps.push(step, 1.5 * step);
  steps = [...new Set([...steps, planned, most])].filter((each) => each <= most).sort((a, b) => a - b);
  $("slider").max = steps.length - 1;
  $("slider").value = steps.indexOf(planned);
  showContext(planned);
}
function showContext(tokens) {
  $("slider-value").textContent = tokens.toLocaleString("en");
  $("slider").setAttribute("aria-valuetext", `${tokens} tokens`);
}

const nameOf = (device) => best.teams[device].join(" + ");
function orderOf(blocks) { // devices in the order of their blocks; idle hosts before them, idle cards behind
  const used = [...new Set(blocks)];
  const idle = best.teams.map((_, at) => at).filter((at) => !used.includes(at));
  const isHost = (at) => best.memory.some((each) => each.is_host && best.teams[at].includes(each.device));
  return [...idle.filter(isHost), ...used, ...idle.filter((at) => !isHost(at))];
}

let order = []; // of the devices in the strip, kept while borders move
function showPicture(told) {
  if (!mine) order = orderOf(best.blocks);
  const blocks = mine ?? best.blocks;
  const how = order.length < 2 || ANSWERS ? "" : "Drag a border, or move it by arrow keys, for a split of your own.";
  $("how").textContent = `${told.hosted ? `On the host, too: ${told.hosted}. ` : ""}${how}`;
  showStrip(blocks);
  $("memory").replaceChildren(...told.memory.map((each) => memoryBar(each, blocks)));
}

function ends() { // first block behind each device of the strip
  const blocks = mine ?? best.blocks;
  let end = 0;
  return order.map((device) => end += blocks.filter((each) => each === device).length);
}

function showStrip(blocks) {
  const focused = document.activeElement?.dataset?.border;
  const parts = [];
  order.forEach((device, at) => {
    const count = blocks.filter((each) => each === device).length;
    const text = count ? [make("span", {}, nameOf(device)), make("span", {}, `${count} block${count > 1 ? "s" : ""}`)] : [];
    parts.push(make("div", { class: "run", style: `flex:${count} 1 0;background:${COLOURS[device % 8]}`, title: `${nameOf(device)}: ${count}` }, ...text));
    if (at + 1 === order.length || ANSWERS) return;
    const next = order[at + 1];
    const there = blocks.filter((each) => each === next).length;
    parts.push(make("div", {
      class: "border", role: "slider", tabindex: "0", "data-border": at, "aria-label": `Border between ${nameOf(device)} and ${nameOf(next)}`,
      "aria-valuemin": at ? ends()[at - 1] : 0, "aria-valuemax": ends()[at + 1], "aria-valuenow": ends()[at], "aria-orientation": "horizontal",
      "aria-valuetext": `${nameOf(device)} ${count} blocks, ${nameOf(next)} ${there}`, onkeydown: (event) => press(event, at), onpointerdown: (event) => drag(event, at),
    }));
  });
  $("strip").replaceChildren(...parts);
  if (focused !== undefined) document.querySelector(`[data-border="${focused}"]`)?.focus();
}

function move(at, end) {
  const now = ends();
  now[at] = Math.min(Math.max(end, at ? now[at - 1] : 0), now[at + 1]);
  mine = order.flatMap((device, each) => Array(now[each] - (each ? now[each - 1] : 0)).fill(device));
  showStrip(mine);
  askMine();
}
function press(event, at) {
  const by = { ArrowLeft: -1, ArrowDown: -1, ArrowRight: 1, ArrowUp: 1, PageDown: -5, PageUp: 5, Home: -1e9, End: 1e9 }[event.key];
  if (!by) return;
  event.preventDefault();
  move(at, ends()[at] + by);
}
function drag(event, at) {
  event.preventDefault();
  document.querySelector(`[data-border="${at}"]`).focus();
  const box = $("strip").getBoundingClientRect();
  const follow = (moved) => move(at, Math.round((moved.clientX - box.left) / box.width * best.blocks.length));
  const stop = () => { removeEventListener("pointermove", follow); removeEventListener("pointerup", stop); };
  addEventListener("pointermove", follow);
  addEventListener("pointerup", stop);
}

function memoryBar(each, blocks) {
  const whole = Math.max(each.total ?? 0, each.weights + each.cache + each.buffers) || 1;
  const colour = COLOURS[best.teams.findIndex((team) => team.includes(each.device)) % 8];
  const parts = [["weights", each.weights], ["cache", each.cache], ["buffers", each.buffers], ["free", Math.max(each.free ?? 0, 0)]];
  if (each.total && each.limit) parts.push(["kept free", Math.max(each.total - Math.max(each.limit, each.weights + each.cache + each.buffers), 0)]);
  const told = parts.filter(([, bytes]) => bytes > 0).map(([name, bytes]) => `${name} ${gib(bytes)}`).join(", ");
  const lacks = each.free !== null && each.free < -1;
  return make("li", {}, make("b", {}, each.device), each.total ? ` of ${gib(each.total)}: ` : ": ", told, lacks ? make("span", { class: "error" }, ` no room: ${gib(-each.free)} lack`) : "",
    make("div", { class: `bar${lacks ? " full" : ""}`, "aria-hidden": "true" }, ...parts.map(([name, bytes]) =>
      make("i", { class: name.split(" ")[0], style: `width:${bytes / whole * 100}%;${["free", "kept free"].includes(name) ? "" : `background-color:${colour}`}` }))));
}

function table(caption, head, rows) {
  return make("div", { class: "wide", tabindex: "0", role: "region", "aria-label": caption }, make("table", {}, make("thead", {}, make("tr", {}, ...head.map((each) => make("th", { scope: "col" }, each)))),
    make("tbody", {}, ...rows.map((row) => make("tr", {}, ...row.map((each) => make("td", {}, each)))))));
}
const speeds = (told) => ["prompt", "generated"].map((what) => speedOf(told, what) ? rate(speedOf(told, what)) : "-");
const ratio = (told) => told.tokens_per_s ? `${(told.tokens_per_s / best.tokens_per_s).toFixed(2)}x` : "does not fit";

let askingMine = new AbortController();
const askMine = later(async () => {
  askingMine.abort();
  askingMine = new AbortController();
  try {
    const told = await send("plan", JSON.stringify({ ...question(), split: mine }), askingMine.signal);
    $("yours").hidden = false;
    $("yours").replaceChildren(make("h3", {}, told.loads ? `Yours is ${ratio(told)} as fast as the best` : "Yours does not load: no room"),
      table("Yours against the best", ["split", "prompt tokens/s", "generated tokens/s"], [["yours", ...speeds(told)], ["the best", ...speeds(best)]]),
      ...(told.launch.length ? [make("pre", { tabindex: "0" }, told.launch.join("\n"))] : []), told.why_no_line ?? "",
      make("p", {}, make("button", { type: "button", onclick: () => { mine = null; $("yours").hidden = true; showPicture(best); } }, "Back to the best")));
    showPicture(told);
  } catch (error) {
    if (error instanceof Failed) { unblame(); blame(error.field, error.message); }
  }
}, 120);

// ---------------------------------------------------------------- tables, and a line that is pasted

const comparing = {};
async function compare(id, first, cases) { // asks one question after the other, and shows what came so far
  comparing[id]?.abort();
  const { signal } = comparing[id] = new AbortController();
  const rows = [];
  for (const [name, changes] of cases) {
    const told = await send("plan", JSON.stringify({ ...question(), ...changes }), signal).catch((error) => error instanceof Failed ? { error: error.message } : null);
    if (!told) return;
    rows.push([name, told.error ?? ratio(told), ...speeds(told), told.context?.longest?.toLocaleString("en") ?? "-"]);
    $(id).lastElementChild.replaceChildren(table($(id).firstElementChild.textContent, [first, "against this", "prompt tokens/s", "generated tokens/s", "longest context"], rows));
  }
}
const tables = {
  precisions: later(() => $("precision").disabled ? $("precisions").lastElementChild.replaceChildren("The file has its own precision.")
    : compare("precisions", "precision", COMPARED.map((each) => [each, { precision: each }])), 400),
  "what-if": later(() => {
    const other = (at, by) => ({ cards: cardText(cards.map(([name, count], each) => [name, count + (each === at ? by : 0)])) });
    compare("what-if", "machine", cards.flatMap(([name], at) => [[`one ${name} more`, other(at, 1)], [`one ${name} less`, other(at, -1)]]));
  }, 400),
  rivals: later(async () => {
    const told = await send("plan", JSON.stringify({ ...question(), compares: true })).catch(() => ({ rivals: [] }));
    if (told.rivals.length) $("verdict").textContent = told.verdict;
    const rows = told.rivals.map((each) => [`${each.kind} (${each.how})`, each.gain ? `${each.gain.toFixed(2)}x` : "does not fit",
      ...[each.prompt_tokens_per_s, each.generated_tokens_per_s].map((speed) => speed ? rate(speed) : "-")]);
    $("rivals").lastElementChild.replaceChildren(table("What the plan beats", ["instead of the plan", "gain of the plan", "prompt tokens/s", "generated tokens/s"], rows));
  }, 400),
};

async function compareLine() {
  unblame();
  $("line-answer").replaceChildren("Reading it...");
  try {
    const told = await send("plan", JSON.stringify({ ...question(), line: $("line").value }));
    const words = told.loads ? "It loads." : "It does not load: no room on " + told.memory.filter((each) => each.free < -1).map((each) => each.device).join(", ") + ".";
    const held = told.memory.map((each) => [each.device, gib(each.weights), gib(each.cache), each.total ? gib(each.total) : "-"]);
    $("line-answer").replaceChildren(make("h3", {}, words + (told.gain ? ` The best for the same requests is ${told.gain.toFixed(2)}x as fast.` : "")),
      table("Your line", ["split", "prompt tokens/s", "generated tokens/s"], [["yours", ...speeds(told)]]), table("Memory of your line", ["device", "weights", "cache", "memory"], held),
      make("h3", {}, "The best line"), make("pre", { tabindex: "0" }, told.launch.join("\n")));
  } catch (error) {
    $("line-answer").replaceChildren();
    if (error instanceof Failed) blame(error.field ?? "line", error.message);
  }
}

// ---------------------------------------------------------------- files

async function dropModel(name, header) {
  const told = await send(`model?name=${encodeURIComponent(name)}`, header);
  kept.set(told.model, { name, header });
  $("model").value = told.model;
  $("precision").disabled = told.model.includes(".gguf@");
}

async function takeModel(file) {
  unblame();
  try {
    await dropModel(file.name, file.slice(0, file.name.toLowerCase().endsWith(".json") ? file.size : await headerBytes(file)));
    changed();
  } catch (error) {
    blame("model", error.message);
  }
}

let chosen = [], solving = null;
async function solve() {
  unblame();
  if (!chosen.length) return blame("file", "which file? Drop a model or a problem file first");
  const main = chosen.find((file) => !file.name.endsWith(".bin")) ?? chosen[0];
  const suffix = (file) => file.name.slice(file.name.lastIndexOf(".")).toLowerCase();
  const { cards: named, ram, processor, link } = question();
  const asked = { files: chosen.map((file) => [suffix(file), file.size]), name: main.name, cards: named, ram, processor, link, objective: $("objective").value, seconds: Number($("seconds").value) };
  solving = new AbortController();
  [$("solve").disabled, $("end").hidden, $("progress-box").hidden, $("figures").hidden, $("report").hidden] = [true, false, false, true, true];
  $("file-verdict").textContent = `Solving ${main.name}...`;
  const trace = [];
  try {
    const got = await fetch(`solve?question=${encodeURIComponent(JSON.stringify(asked))}`, { method: "POST", body: new Blob(chosen), signal: solving.signal });
    if (!got.ok) throw new Failed(await got.json());
    const reader = got.body.pipeThrough(new TextDecoderStream()).getReader();
    for (let rest = "", done = false; !done;) {
      const part = await reader.read();
      done = part.done;
      const lines = (rest + (part.value ?? "")).split("\n");
      rest = lines.pop();
      for (const line of lines) showSolve(JSON.parse(line), trace);
    }
  } catch (error) {
    $("file-verdict").textContent = error.name === "AbortError" ? "Ended." : "No answer.";
    if (error instanceof Failed) blame(error.field ?? "file", error.message);
    else if (error.name !== "AbortError") gone();
  }
  [$("solve").disabled, $("end").hidden] = [false, true];
}

function showSolve(told, trace) {
  if (told.error) throw new Failed(told);
  if (told.seconds === undefined) return;
  if (told.of) $("progress").max = told.of;
  $("progress").value = told.seconds;
  const gap = told.best && told.bound !== null ? `, gap ${(100 * Math.max(0, 1 - told.bound / told.best)).toFixed(1)} %` : "";
  $("progress-told").textContent = `best ${seconds(told.best)}, bound ${seconds(told.bound)}${gap}, after ${told.seconds.toFixed(1)} s`;
  trace.push(told);
  $("curve").innerHTML = curve(trace);
  if (told.text === undefined) return;
  $("file-verdict").textContent = told.verdict;
  $("report").textContent = told.text;
  [$("report").hidden, $("figures").hidden] = [false, !told.graph];
  if (told.graph) [$("graph").src, $("gantt").src, $("gantt").hidden] = [told.graph, told.gantt ?? "data:,", !told.gantt];
}

function curve(trace) { // best and bound over time; only numbers come in
  const points = trace.filter((each) => each.best !== null || each.bound !== null);
  const most = Math.max(...points.flatMap((each) => [each.best ?? 0, each.bound ?? 0]));
  if (!points.length || !(most > 0)) return "";
  const end = Math.max(points.at(-1).seconds, 1e-9);
  const line = (what) => points.filter((each) => each[what] !== null).map((each) => `${(each.seconds / end * 600).toFixed(1)},${(110 - each[what] / most * 100).toFixed(1)}`).join(" ");
  return `<svg viewBox="0 0 600 120" role="img" aria-label="Best and bound over time" preserveAspectRatio="none"><polyline points="${line("best")}" fill="none" stroke="#1f5a96" stroke-width="2" vector-effect="non-scaling-stroke"/>` +
    `<polyline points="${line("bound")}" fill="none" stroke="#a8480f" stroke-width="2" stroke-dasharray="6 4" vector-effect="non-scaling-stroke"/></svg><p class="note">blue: best; orange, dashed: bound</p>`;
}

// ---------------------------------------------------------------- start

function listen() {
  for (const name of [...FIELDS, "ram-size", "ram-type", "ram-channels"]) $(name).addEventListener(["number"].includes($(name).type) ? "input" : "change", changed);
  $("model").addEventListener("input", () => $("precision").disabled = $("model").value.includes(".gguf@"));
  $("slider").addEventListener("input", () => { $("context").value = steps[$("slider").value]; showContext(steps[$("slider").value]); changed(); });
  $("add-card").addEventListener("click", addCard);
  $("card").addEventListener("keydown", (event) => { if (event.key === "Enter") { event.preventDefault(); addCard(); } });
  $("card").addEventListener("change", () => { if (known.card[$("card").value]) addCard(); });
  $("form").addEventListener("submit", (event) => event.preventDefault());
  $("model-file").addEventListener("change", () => $("model-file").files[0] && takeModel($("model-file").files[0]));
  $("any-file").addEventListener("change", () => { chosen = [...$("any-file").files]; unblame(); });
  for (const box of document.querySelectorAll(".drop")) {
    box.addEventListener("dragover", (event) => { event.preventDefault(); box.classList.add("over"); });
    box.addEventListener("dragleave", () => box.classList.remove("over"));
    box.addEventListener("drop", (event) => {
      event.preventDefault();
      box.classList.remove("over");
      const input = box.querySelector("input");
      input.files = event.dataTransfer.files;
      input.dispatchEvent(new Event("change"));
    });
  }
  for (const id of ["tab-llm", "tab-file"]) $(id).addEventListener("click", () => { show(id === "tab-file"); writeAddress(); ask(); });
  $("solve").addEventListener("click", solve);
  $("end").addEventListener("click", () => solving?.abort());
  $("compare").addEventListener("click", compareLine);
  for (const id of Object.keys(tables)) $(id).addEventListener("toggle", () => $(id).open && tables[id]());
  for (const button of document.querySelectorAll("[data-copy]")) {
    const text = button.textContent;
    button.addEventListener("click", async () => {
      await navigator.clipboard.writeText($(button.dataset.copy).textContent);
      button.textContent = "Copied";
      setTimeout(() => button.textContent = text, 1500);
    });
  }
  addEventListener("hashchange", () => { readAddress(); ask(); });
}

async function start() {
  if (ANSWERS) {
    document.body.classList.add("static");
    $("asked").append(...ANSWERS.map((each, at) => make("option", { value: at }, [each.question.model, each.question.precision, "on", each.question.cards].filter(Boolean).join(" "))));
    $("asked").addEventListener("change", ask);
    show(false);
    return ask();
  }
  listen();
  known = await (await fetch("known")).json();
  const options = (id, names, none) => $(id).append(...(none === undefined ? [] : [make("option", { value: "" }, none)]), ...names.map((each) => make("option", {}, each)));
  options("models", known.model);
  options("card-names", Object.keys(known.card));
  options("processors", known.processor);
  options("precision", known.precision);
  options("cache_precision", known.cache_precision);
  options("runtime", known.runtime, "none: no runtime's rules");
  options("link", known.link, "the card's own slot");
  options("ram-type", RAM);
  options("ram-channels", ["1", "2", "4", "6", "8", "12"]);
  readAddress();
  ask();
}

start();
