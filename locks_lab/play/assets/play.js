// The page on which the algorithm is played. A board is a situation, a list of moves, and how many of them are played. The world is
// made anew for each look (`locks_lab.play.requests`), so nothing is kept anywhere but here and in the address.

import { $, addTip, draw, make } from "./dom.js";

const FIELDS = ["kind", "clients", "nodes", "homes", "options", "rule"];
const KINDS = { ours: "locks", original: "the Erlang original", elections: "an election" };
const DOCS = document.documentElement.dataset.docs ?? ""; // where the pages are; empty if they are not here
const GROUPS = { message: "What may arrive or be noticed", client: "What clients may do", fault: "What may go wrong, or be mended" };
const MOST_EDGES = 8; // that are told in words
const SIDE = 0.3; // as cosine: beyond it a label begins, or ends, at its circle's edge

let boards = [];
let listed = [];
let exercises = [];
let exercise = 0; // the number of the one that is answered on the first board; 0 if there is none
let verdict = null;
let timer = null;
let speed = 900; // milliseconds for each move

// --- Asking ---------------------------------------------------------------------------------------

// In the pages of the documentation, `askLocally` is there: Python in the browser answers.
async function ask(request) {
  if (globalThis.askLocally) return globalThis.askLocally(request);
  const answer = await fetch("ask", { method: "POST", headers: { "Content-Type": "application/json" }, body: JSON.stringify(request) });
  const value = await answer.json();
  if (!answer.ok) throw new Error(value.error);
  return value;
}

async function look(board) {
  board.seen = await ask({ what: "look", situation: { ...board.situation, moves: board.moves.slice(0, board.at) } });
  board.moves.splice(0, board.at, ...board.seen.moves);
  board.at = board.seen.moves.length;
}

function complain(error) {
  $("notice").hidden = !error;
  $("notice").textContent = error ? error.message : "";
}

// Runs an action and shows all again; one at a time, so that quick keys keep their order.
let last = Promise.resolve();
function act(action) {
  last = last.then(async () => {
    try {
      complain(null);
      await action();
    } catch (error) {
      complain(error);
      pause();
    }
    show();
  });
  return last;
}

// --- The address ----------------------------------------------------------------------------------

function address() {
  const parts = new URLSearchParams();
  if (exercise) parts.set("exercise", exercise);
  boards.forEach((board, number) => {
    const mark = number ? "2." : "";
    for (const field of FIELDS) {
      const value = board.situation[field];
      if (field === "clients") value.forEach((each) => parts.append(`${mark}client`, each));
      else if (value) parts.set(mark + field, value);
    }
    if (board.moves.length) parts.set(`${mark}moves`, board.moves.join(" "));
    parts.set(`${mark}at`, board.at);
  });
  return `#${parts}`;
}

function fromAddress(text) {
  const parts = new URLSearchParams(text.replace(/^#/, ""));
  exercise = exercises[parts.get("exercise") - 1] ? Number(parts.get("exercise")) : 0;
  verdict = null;
  if (exercise && !parts.has("at")) return [exercises[exercise - 1].situation];
  return ["", "2."].filter((mark) => parts.has(`${mark}at`)).map((mark) => {
    const situation = { clients: parts.getAll(`${mark}client`) };
    for (const field of FIELDS) if (field !== "clients" && parts.has(mark + field)) situation[field] = parts.get(mark + field);
    const moves = (parts.get(`${mark}moves`) ?? "").split(" ").filter(Boolean);
    return made(situation, moves, Number(parts.get(`${mark}at`)) || 0);
  });
}

function made(situation, moves = [], at = 0) {
  const kept = Object.fromEntries(FIELDS.filter((field) => situation[field] !== undefined).map((field) => [field, situation[field]]));
  return { situation: { kind: "ours", clients: [], nodes: "1", ...kept }, moves, at: Math.min(at, moves.length), eyes: 0, seen: null };
}

// --- Moves ----------------------------------------------------------------------------------------

const forward = (board) => {
  if (board.at === board.moves.length) board.moves.push("next");
  board.at += 1;
  return look(board).catch((error) => {
    board.at -= 1;
    board.moves.splice(board.at);
    throw error;
  });
};

function next(board) {
  return act(() => (board.seen.over && board.at === board.moves.length ? pause() : forward(board)));
}

function go(board, at) {
  return act(() => {
    board.at = Math.max(0, Math.min(board.moves.length, at));
    return look(board);
  });
}

// A chosen move that is not the one that was played here once begins a new branch.
function choose(board, move) {
  return act(() => {
    if (board.moves[board.at] !== move) board.moves.splice(board.at, Infinity, move);
    return forward(board);
  });
}

function play() {
  if (timer !== null) return pause();
  const step = async () => {
    await Promise.all(boards.map((board) => (board.seen.over && board.at === board.moves.length ? null : act(() => forward(board)))));
    if (timer === null) return;
    if (boards.every((board) => board.seen.over && board.at === board.moves.length)) pause();
    else timer = setTimeout(step, speed);
    show();
  };
  timer = setTimeout(step, 0);
  show();
}

function pause() {
  clearTimeout(timer);
  timer = null;
}

// Lets a client take a further step, before those that its script still has.
function insert(board, client, step) {
  return act(async () => {
    const before = { clients: board.situation.clients, moves: [...board.moves] };
    const steps = board.situation.clients[client.number - 1].split(";").map((each) => each.trim()).filter(Boolean);
    steps.splice(client.at, 0, step);
    board.situation.clients = board.situation.clients.map((each, index) => (index === client.number - 1 ? steps.join("; ") : each));
    board.moves.splice(board.at);
    try {
      await look(board);
      if (board.seen.options.some((each) => each.move === String(client.number))) {
        board.moves.push(String(client.number));
        await forward(board);
      }
    } catch (error) {
      board.situation.clients = before.clients;
      board.moves = before.moves;
      throw error;
    }
  });
}

function branch(board) {
  return act(async () => {
    const other = made(structuredClone(board.situation), [...board.moves.slice(0, board.at)], board.at);
    await look(other);
    boards = [board, other];
  });
}

function alike(board) {
  return act(async () => {
    const kind = board.situation.kind === "ours" ? "original" : "ours";
    const found = await ask({ what: "alike", kind, situation: { ...board.situation, moves: board.moves.slice(0, board.at) } });
    const other = made(found, found.moves, found.moves.length);
    await look(other);
    boards = [board, other];
  });
}

async function begin(situations) {
  pause();
  await act(async () => {
    const fresh = situations.map((each) => (each.situation ? each : made(each, [...(each.moves ?? [])], 0)));
    for (const board of fresh) await look(board);
    boards = fresh;
  });
}

// A situation of a list; the number of an exercise, if it is that of one.
async function open(situation, number = 0) {
  exercise = number;
  verdict = null;
  if (number) $("situations").value = "";
  await begin([situation]);
  boards[0].name = situation.name;
  show();
}

// --- Showing --------------------------------------------------------------------------------------

const button = (text, onclick, attributes = {}) => make("button", { type: "button", onclick, ...attributes }, text);

function panel(board, name, title, ...children) {
  const label = boards.length > 1 ? `${title}, board ${boards.indexOf(board) + 1}` : title; // landmarks have names of their own
  return make("section", { class: name, "aria-label": label }, make("h2", {}, title), ...children);
}

function saidPanel(board) {
  const list = make("ol", { tabindex: 0, "aria-label": "what has happened" });
  board.seen.said.forEach((each, number) => {
    const lines = each.lines.map((line) => make("span", { class: line.startsWith("  ") ? "inner" : "" }, line.trim(), " "));
    if (!lines.length) return;
    const rule = each.rule.length ? make("span", { class: "rule soft" }, DOCS ? make("a", { href: DOCS + each.rule[1].replace(".md", "/") }, each.rule[0]) : `Rule: ${each.rule[0]}`) : null;
    list.append(make("li", { class: number === board.at ? "now" : "" }, button("", () => go(board, number), { "aria-label": `to move ${number}: ${each.lines.join(" ")}` }), rule));
    list.lastChild.firstChild.append(...lines);
  });
  if (!list.children.length) list.append(make("li", {}, "Nothing has happened yet."));
  requestAnimationFrame(() => { list.scrollTop = list.scrollHeight; });
  return panel(board, "said", "What has happened, and why", list);
}

function movesPanel(board) {
  const kept = board.moves[board.at]; // the move that was played here before one went back
  const rows = [];
  let number = 0;
  for (const [group, title] of Object.entries(GROUPS)) {
    const options = board.seen.options.filter((each) => each.group === group);
    if (!options.length) continue;
    const list = make("ol", { "aria-label": title });
    for (const each of options) {
      number += 1;
      const kinds = [each.move === (kept ?? board.seen.usual) && "usual", group === "fault" && "fault"].filter(Boolean).join(" ");
      list.append(make("li", {}, button("", () => choose(board, each.move), { class: kinds, "data-move": each.move })));
      list.lastChild.firstChild.append(make("span", { class: "key" }, number < 10 ? String(number) : ""), ` ${each.text}`);
    }
    rows.push(make("h3", {}, title), list);
  }
  if (!rows.length) rows.push(make("p", { class: "soft" }, "Nothing can happen any more."));
  return panel(board, "moves", "What may happen next", ...rows);
}

// The clients of a circle in the order of their waits, the first one first, if there is a circle: a shortest one through the last client
// that is in any.
function circleIn(edges) {
  const next = new Map();
  for (const { from, to } of edges) next.set(from, [...(next.get(from) ?? []), to]);
  for (const start of [...next.keys()].sort((one, other) => other - one)) {
    const ways = [[start]];
    const reached = new Set();
    for (const way of ways) {
      for (const each of next.get(way.at(-1)) ?? []) {
        if (each === start) return turned(way);
        if (!reached.has(each)) ways.push([...way, each]);
        reached.add(each);
      }
    }
  }
  return [];
}

function turned(circle) {
  const at = circle.indexOf(Math.min(...circle));
  return [...circle.slice(at), ...circle.slice(0, at)];
}

function graphPanel(board) {
  const { clients } = board.seen;
  const viewer = clients.find((each) => each.number === board.eyes);
  const edges = viewer ? viewer.sees : board.seen.waits;
  const select = make("select", { "aria-label": "whose knowledge is shown", onchange: (event) => { board.eyes = Number(event.target.value); show(); } });
  select.append(make("option", { value: 0 }, "as it is"));
  for (const each of clients) select.append(make("option", { value: each.number, selected: each.number === board.eyes }, `as ${each.name} sees it`));
  const [width, middle, radius] = [320, 131, 90];
  const circle = circleIn(edges);
  const after = new Map(circle.map((each, index) => [each, circle[(index + 1) % circle.length]]));
  const named = circle.length ? `A circle: ${[...circle, circle[0]].map((each) => clients.find((client) => client.number === each)?.name ?? each).join(" → ")}. None of them can proceed before one gives way.` : "";
  const svg = draw("svg", { class: "graph", role: "img", "aria-label": edges.length ? [named, edges.map((edge) => edge.text).join("; ")].filter(Boolean).join(" ") : "nobody waits for anybody" });
  const [tip, badTip] = [addTip(svg), addTip(svg, "bad")];
  const labels = [];
  const places = new Map(clients.map((each, index) => {
    const angle = (2 * Math.PI * index) / clients.length - Math.PI / 2;
    return [each.number, [width / 2 + radius * 1.3 * Math.cos(angle), middle + radius * Math.sin(angle), angle]];
  }));
  svg.setAttribute("viewBox", `0 0 ${width} ${Math.max(middle, ...[...places.values()].map(([, y]) => y)) + 42}`);
  const drawn = new Set();
  for (const edge of edges) {
    const [from, to] = [places.get(edge.from), places.get(edge.to)];
    const key = `${edge.from}-${edge.to}`;
    if (!from || !to || drawn.has(key)) continue;
    drawn.add(key);
    const [dx, dy] = [to[0] - from[0], to[1] - from[1]];
    const length = Math.hypot(dx, dy) || 1;
    const [ux, uy] = [dx / length, dy / length];
    const [mx, my] = [(from[0] + to[0]) / 2 - uy * 18, (from[1] + to[1]) / 2 + ux * 18]; // two opposite arrows don't lie on each other
    const closed = after.get(edge.from) === edge.to;
    const wanted = edges.filter((each) => each.from === edge.from && each.to === edge.to).map((each) => each.lock);
    labels.push(draw("text", { x: mx, y: my + 4, class: closed ? "lock bad" : "lock" }, [...new Set(wanted)].join(", ")));
    svg.append(draw("path", { class: closed ? "edge bad" : "edge", "marker-end": closed ? badTip : tip, d: `M${from[0] + ux * 20} ${from[1] + uy * 20} Q${mx} ${my} ${to[0] - ux * 21} ${to[1] - uy * 21}` }, draw("title", {}, edge.text)));
  }
  for (const each of clients) {
    const [x, y, angle] = places.get(each.number);
    const side = Math.cos(angle) > SIDE ? 1 : Math.cos(angle) < -SIDE ? -1 : 0;
    const state = { x: x + side * 20, y: y + (Math.sin(angle) < -SIDE ? -27 : 34), class: `small ${["start", "middle", "end"][side + 1]}` };
    const kinds = [each.holds.length && "holding", each.wants.length && "waiting", after.has(each.number) && "bad", /done|gone|ended/.test(each.state) && "gone"].filter(Boolean).join(" ");
    svg.append(draw("circle", { class: kinds, cx: x, cy: y, r: 20 }), draw("text", { x, y: y + 4 }, each.name.replace(/^(client|candidate) /, "")), draw("text", state, each.state.length > 26 ? `${each.state.slice(0, 25)}…` : each.state));
  }
  svg.append(...labels); // above the arrows
  const words = make("ul", { class: "edges" }, ...edges.slice(0, MOST_EDGES).map((edge) => make("li", {}, edge.text)));
  return panel(board, "waits", "Who waits for whom", select, svg, named ? make("p", { class: "circle" }, named) : null, edges.length ? words : make("p", { class: "soft" }, viewer ? `${viewer.name} knows of no wait.` : "Nobody waits."));
}

function tablesPanel(board) {
  const { nodes } = board.seen;
  const parts = nodes.flatMap((node) => {
    const rows = node.table.map((row) => make("tr", {}, make("td", {}, row.id), make("td", {}, make("div", { class: "queue" }, ...row.queue.map((each) => make("span", { class: `tag ${each.state === "has it" ? "held" : "waits"}` }, `${each.who}: ${each.mode}, ${each.state}${each.token === null ? "" : ` (token ${each.token})`}`))))));
    const title = make("h3", {}, node.name, node.up ? "" : " (down)");
    if (!rows.length) return [title, make("p", { class: "soft" }, node.up ? "No lock is held or requested here." : "It does not run.")];
    return [title, make("table", {}, make("tr", {}, make("th", {}, "lock"), make("th", {}, "queue, the first one first")), ...rows)];
  });
  const broken = board.seen.broken.map((text) => make("li", {}, text));
  return panel(board, "tables", nodes.length > 1 ? "Lock tables" : "The lock table", ...parts, broken.length ? make("ul", { class: "edges" }, ...broken) : null, flight(board));
}

function flight(board) {
  const rows = board.seen.flight.map((way) => make("li", {}, `${way.from} → ${way.to}: ${way.texts.join("; then: ")}`));
  return make("div", {}, make("h3", {}, "On the way"), rows.length ? make("ul", { class: "edges" }, ...rows) : make("p", { class: "soft" }, "No message."));
}

function clientsPanel(board) {
  const isElection = board.situation.kind === "elections";
  const rows = board.seen.clients.map((client) => {
    const steps = make("span", { class: "steps" }, ...client.steps.flatMap((step, index) => [make("span", { class: step.done ? "done" : index === client.at ? "at" : "" }, step.text), index + 1 < client.steps.length ? "; " : ""]));
    const input = make("input", { size: 14, placeholder: "write a", "aria-label": `a step for ${client.name}`, autocomplete: "off", spellcheck: "false" });
    const form = isElection || /done|gone|ended/.test(client.state) ? null : make("form", { onsubmit: (event) => { event.preventDefault(); if (input.value.trim()) insert(board, client, input.value.trim()); } }, input, " ", make("button", {}, "Do"));
    const tags = [...client.holds.map((each) => make("span", { class: "tag held" }, `has ${each}`)), ...client.wants.map((each) => make("span", { class: "tag waits" }, `wants ${each}`))];
    const knows = make("ul", { class: "knows" }, ...client.knows.map((each) => make("li", {}, each)));
    return make("tr", {}, make("td", {}, client.name, board.seen.nodes.length > 1 ? make("div", { class: "soft" }, `on ${client.node}`) : null), make("td", {}, client.state, make("div", { class: "queue" }, ...tags)), make("td", {}, isElection ? null : steps, form), make("td", {}, client.knows.length ? knows : make("span", { class: "soft" }, "nothing of others")));
  });
  const heads = ["who", "state", isElection ? "" : "steps", "knows"].map((each) => make("th", {}, each));
  return panel(board, "clients", isElection ? "Candidates" : "Clients", make("div", { class: "wide", tabindex: 0 }, make("table", {}, make("tr", {}, ...heads), ...rows)));
}

function exercisePanel(board) {
  const asked = exercises[exercise - 1];
  const input = make("input", { size: 12, id: "answer", "aria-label": "your answer", autocomplete: "off", spellcheck: "false" });
  const check = (event) => {
    event.preventDefault();
    const text = input.value;
    act(async () => { verdict = { typed: text, ...await ask({ what: "answer", number: exercise, text, situation: { ...board.situation, moves: board.moves.slice(0, board.at) } }) }; });
  };
  input.value = verdict?.typed ?? "";
  return make("form", { class: "exercise", onsubmit: check }, make("h2", {}, `Exercise ${exercise}: ${asked.title}`), make("p", {}, asked.question), asked.typed ? input : null, asked.typed ? " " : null, make("button", {}, asked.typed ? "Check" : "Check these moves"),
    make("p", { role: "status", class: verdict?.right ? "over" : "soft" }, verdict?.text ?? ""));
}

function boardView(board, number) {
  const { situation, seen } = board;
  const about = listed.find((each) => each.name === board.name)?.about ?? "";
  const top = make("div", { class: "top" }, make("h2", {}, `${KINDS[situation.kind]}${situation.rule && situation.rule !== "ours" && situation.rule !== "original" ? `, rule ${situation.rule}` : ""}`));
  top.append(
    button("What if …", () => branch(board), { title: "a second board from here ( w )" }),
    situation.kind === "elections" ? "" : button(situation.kind === "ours" ? "The original, asked alike" : "Ours, asked alike", () => alike(board), { title: "clients ask in the same order ( o )" }),
    button("Copy link", () => act(() => navigator.clipboard.writeText(location.href))),
    situation.kind === "elections" ? "" : button("As a command", () => act(async () => { const text = await ask({ what: "command", situation: { ...situation, moves: board.moves.slice(0, board.at) } }); $("o-text").value = text; $("opener").showModal(); })),
    boards.length > 1 ? button("Close", () => act(() => { boards = boards.filter((each) => each !== board); })) : "",
  );
  const bar = make("div", { class: "bar" },
    button("Back", () => go(board, board.at - 1), { disabled: board.at === 0 }),
    button("Next", () => next(board), { class: "next", disabled: seen.over && board.at === board.moves.length }),
    button(timer === null ? "Play" : "Pause", play),
    make("label", { class: "speed" }, "Speed ", make("input", { type: "range", min: 1, max: 10, value: Math.round(2100 / (speed + 200)), "aria-label": "speed", oninput: (event) => { speed = 2100 / event.target.value - 200; } })),
    make("input", { type: "range", min: 0, max: board.moves.length, value: board.at, "aria-label": "move", oninput: (event) => go(board, Number(event.target.value)) }),
    make("span", { class: "soft" }, `${board.at} of ${board.moves.length}`));
  const end = seen.wrong ? make("p", { class: "wrong" }, seen.wrong) : seen.over ? make("p", { class: "over" }, "Nothing needs to happen any more: all is well.") : null;
  return make("article", { class: "board", "aria-label": `board ${number + 1}` }, exercise && !number ? exercisePanel(board) : null, top, about ? make("p", { class: "about soft" }, about) : null, bar, end, make("div", { class: "panels" }, saidPanel(board), movesPanel(board), graphPanel(board), tablesPanel(board), clientsPanel(board)));
}

// Marks what was not there when the board was shown at another move.
function markNew(board, article) {
  const parts = [...article.querySelectorAll(".tag, .knows li, .edges li")];
  const names = parts.map((part) => [part.closest("section").className, part.closest("tr")?.firstChild.textContent, part.textContent].join("|"));
  if (board.shown?.at !== board.at) Object.assign(board, { before: board.shown?.names, shown: { at: board.at, names: new Set(names) } });
  parts.forEach((part, index) => part.classList.toggle("new", board.before !== undefined && !board.before.has(names[index])));
  return article;
}

function show() {
  const { textContent: focused, id } = document.activeElement ?? {};
  const isIn = $("boards").contains(document.activeElement);
  $("exercises").value = exercise ? exercise - 1 : "";
  $("boards").className = boards.length > 1 ? "two" : "";
  $("boards").replaceChildren(...boards.map((board, number) => markNew(board, boardView(board, number))));
  if (isIn && id) $(id)?.focus();
  else if (isIn) [...$("boards").querySelectorAll("button")].find((each) => each.textContent === focused && !each.disabled)?.focus();
  history.replaceState(null, "", address());
  const now = boards[0]?.seen;
  $("said").textContent = now ? (now.wrong ?? now.said.at(-1).lines.join(" ")) : "";
}

// --- Keys and dialogs -----------------------------------------------------------------------------

const actions = {
  ArrowRight: () => boards.forEach(next), n: () => boards.forEach(next),
  ArrowLeft: () => boards.forEach((board) => go(board, board.at - 1)), b: () => boards.forEach((board) => go(board, board.at - 1)),
  Home: () => boards.forEach((board) => go(board, 0)), End: () => boards.forEach((board) => go(board, board.moves.length)),
  " ": play, w: () => branch(boards[0]), "?": () => $("keys").showModal(),
  o: () => { if (boards[0].situation.kind !== "elections") alike(boards[0]); },
};

document.addEventListener("keydown", (event) => {
  if (event.ctrlKey || event.metaKey || event.altKey || document.querySelector("dialog[open]") || event.target.closest("input, textarea, select")) return;
  if (event.key === " " && event.target.closest("button, a")) return; // presses it
  const option = /^[1-9]$/.test(event.key) && document.querySelectorAll(".board .moves button")[event.key - 1];
  const action = option ? () => option.click() : actions[event.key];
  if (!action || !boards.length) return;
  event.preventDefault();
  action();
});

const optional = (field) => { const value = $(`b-${field}`).value.trim(); return value ? { [field]: value } : {}; };

$("build").addEventListener("click", () => {
  const now = boards[0]?.situation ?? { kind: "ours", clients: [], nodes: "1" };
  $("b-clients").value = now.clients.join("\n");
  for (const field of FIELDS) if (field !== "clients") $(`b-${field}`).value = now[field] ?? "";
  $("builder").showModal();
});
$("builder").addEventListener("close", () => {
  if ($("builder").returnValue !== "go") return;
  const kind = $("b-kind").value;
  const clients = kind === "elections" ? [] : $("b-clients").value.split("\n").map((each) => each.trim()).filter(Boolean);
  begin([{ kind, clients, nodes: $("b-nodes").value.trim() || "1", ...optional("homes"), ...optional("options"), ...optional("rule") }]);
});
$("open").addEventListener("click", () => { $("o-text").value = ""; $("opener").showModal(); });
$("opener").addEventListener("close", () => {
  if ($("opener").returnValue === "go") act(async () => { const found = await ask({ what: "open", text: $("o-text").value }); const board = made(found, found.moves, 0); await look(board); boards = [board]; });
});
for (const id of ["builder", "opener"]) $(id).addEventListener("cancel", () => { $(id).returnValue = ""; });
$("help").addEventListener("click", () => $("keys").showModal());
const pickers = { situations: (index) => open(listed[index]), exercises: (index) => open(exercises[index].situation, index + 1) };
for (const [id, pick] of Object.entries(pickers)) $(id).addEventListener("change", (event) => event.target.value && pick(Number(event.target.value)));
addEventListener("hashchange", () => { if (location.hash !== address()) begin(fromAddress(location.hash)); });

[listed, exercises] = await Promise.all([ask({ what: "list" }), ask({ what: "exercises" })]);
$("situations").append(...listed.map((each, index) => make("option", { value: index }, each.name)));
$("exercises").append(...exercises.map((each, index) => make("option", { value: index }, `${index + 1}. ${each.title}`)));
const given = fromAddress(location.hash);
if (given.length) $("situations").prepend(make("option", { value: "", selected: true }, "that of the link"));
await (given.length ? begin(given) : open(listed[0]));
