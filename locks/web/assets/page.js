// The live page. It keeps a copy of the picture (tables of rows, by key), makes the changes that the server sends, and
// draws the visible part. All text from other programs is inserted as text, never as HTML.

import { $, addTip, draw, make } from "./dom.js";

const ROW = 26; // the height of a row of the tree, as in page.css
const FEW = 300; // up to this many requests, the tree is unfolded at first
const MOST_BOXES = 60; // in the graph
const MOST_CARDS = 20; // deadlocks
const LONGEST = 8; // rows of each list of ages
const LETTER = 6.4; // the mean width of a letter in pictures, in their units
const SAMPLES = 120; // of each rate
const TABLES = ["state", "servers", "agents", "locks", "waits", "deadlocks", "elections", "groups"];

const tables = Object.fromEntries(TABLES.map((name) => [name, new Map()]));
const view = {
  at: 0, // the time of the last picture by the observer's clock
  got: 0, // the time of its arrival here
  live: false,
  mayBreak: false,
  search: "",
  folds: new Map(), // nodes of the tree that the user has folded or unfolded
  rows: [], // the visible rows of the tree
  picked: null, // the key of a row
  agent: null, // the agent whose details are shown
  pressed: false, // whether a mouse button or a finger is down
  flashing: new Set(), // agents
  opened: new Map(), // deadlocks that the user has opened or closed
  steps: new Map(), // the shown step of each deadlock
  newest: 0, // when the newest deadlock was that has a card
  playing: null, // the deadlock whose steps are being played
  paused: false, // whether the user keeps new deadlocks away
  rates: new Map(),
  before: null, // the previous counters of the servers, and their time
};

// --- Small things -------------------------------------------------------------------------------

function fill(element, ...children) {
  element.replaceChildren(...children);
}

function duration(seconds) {
  if (seconds < 60) return `${Math.max(0, seconds).toFixed(1)} s`;
  const minutes = Math.floor(seconds / 60);
  if (minutes < 60) return `${minutes} min ${Math.floor(seconds % 60)} s`;
  const hours = Math.floor(minutes / 60);
  return hours < 48 ? `${hours} h ${minutes % 60} min` : `${Math.floor(hours / 24)} days ${hours % 24} h`;
}

const short = (text, length) => (text.length > length ? `${text.slice(0, length - 1)}…` : text);
const program = (agent) => (agent.program ? `${agent.program}, pid ${agent.pid}` : "");
const nameOf = (part) => (typeof part === "string" ? part : (part?.name ?? JSON.stringify(part)));
// The parts of an id in the tree; those of an election's lock are one part, which has a name.
const partsOf = (lock) => (lock.election === undefined ? lock.id : [{ name: lock.typed }]);
const pathOf = (lock) => partsOf(lock).map(nameOf).join("/");
const labelOf = (key) => tables.agents.get(key)?.label ?? "somebody";
const plural = (count, one, many) => `${count.toLocaleString("en")} ${count === 1 ? one : many}`;

// A row has its begin by the clock of a lock server; the rows of servers say how far that clock is ahead of the observer's.
function age(lock) {
  if (!lock.since) return null;
  const observed = view.at + (view.live ? (performance.now() - view.got) / 1000 : 0);
  return observed + (tables.servers.get(lock.clock)?.ahead ?? 0) - lock.since;
}

function ageText(lock) {
  const seconds = age(lock);
  return seconds === null ? "" : duration(seconds);
}

// --- The tree of locks ----------------------------------------------------------------------------

let tree = null;

function matches(lock) {
  const words = view.search.toLowerCase().split(/\s+/).filter(Boolean);
  if (!words.length) return true;
  const agent = tables.agents.get(lock.agent) ?? {};
  const text = [lock.typed, pathOf(lock), lock.held ? "holds" : "waits", lock.mode, agent.label, agent.program, agent.pid, agent.name, agent.address].join(" ").toLowerCase();
  return words.every((word) => text.includes(word));
}

function grow() {
  const root = { key: "", label: "", depth: -1, children: new Map(), requests: [], held: 0, waits: 0 };
  let shown = 0;
  for (const [key, lock] of tables.locks) {
    if (!matches(lock)) continue;
    shown += 1;
    let node = root;
    const path = partsOf(lock);
    for (let depth = 0; depth < path.length; depth++) {
      const name = JSON.stringify(path[depth]);
      let child = node.children.get(name);
      if (!child) {
        const label = nameOf(path[depth]);
        child = { key: `${node.key}/${name}`, label, depth, children: new Map(), requests: [], held: 0, waits: 0 };
        node.children.set(name, child);
      }
      node = child;
      node[lock.held ? "held" : "waits"] += 1;
    }
    node.requests.push([key, lock]);
  }
  tree = { root, shown };
}

function unfolded(node) {
  const said = view.folds.get(node.key);
  if (said !== undefined) return said;
  return view.search !== "" || node.waits > 0 || tree.shown <= FEW || node.depth < 0;
}

const byName = new Intl.Collator("en", { numeric: true });

function flatten() {
  const rows = [];
  const todo = [tree.root];
  while (todo.length) {
    const node = todo.pop();
    if (node.lock) {
      rows.push(node);
      continue;
    }
    if (node.depth >= 0) rows.push(node);
    if (!unfolded(node)) continue;
    const below = [...node.children.values()].sort((a, b) => (b.waits > 0) - (a.waits > 0) || byName.compare(a.label, b.label));
    const here = node.requests
      .sort(([, a], [, b]) => b.held - a.held || a.since - b.since)
      .map(([key, lock]) => ({ key, lock, depth: node.depth + 1 }));
    todo.push(...below.reverse(), ...here.reverse());
  }
  view.rows = rows;
}

function showTree() {
  const box = $("tree");
  const { rows } = view;
  box.style.setProperty("--rows", rows.length);
  $("tree-space").style.height = `${Math.max(rows.length, 1) * ROW}px`;
  const first = Math.max(0, Math.floor(box.scrollTop / ROW) - 4);
  const last = Math.min(rows.length, first + Math.ceil(box.clientHeight / ROW) + 8);
  $("tree-rows").style.transform = `translateY(${first * ROW}px)`;
  const elements = rows.slice(first, last).map((row, index) => treeRow(row, first + index));
  if (!rows.length && view.at) {
    elements.push(make("p", { class: "none" }, view.search ? "No lock matches." : "No transaction holds or requests a lock."));
  }
  fill($("tree-rows"), ...elements);
  const at = rows.findIndex((row) => row.key === view.picked);
  if (at >= first && at < last) box.setAttribute("aria-activedescendant", `row-${at}`);
  else box.removeAttribute("aria-activedescendant");
}

function treeRow(row, index) {
  const element = make("div", { class: "row", role: "treeitem", id: `row-${index}`, "aria-level": row.depth + 1 });
  element.style.paddingLeft = `${row.depth * 16}px`;
  element.dataset.index = index;
  if (row.key === view.picked) {
    element.classList.add("picked");
    element.setAttribute("aria-selected", true);
  }
  if (row.lock) {
    const agent = tables.agents.get(row.lock.agent) ?? { label: "somebody" };
    element.append(
      make("span", { class: "twist" }),
      make("span", { class: `tag ${row.lock.held ? "held" : "waits"}` }, `${row.lock.held ? "holds" : "waits"} ${row.lock.mode}`),
      make("span", { class: "who" }, agent.label),
      make("span", { class: "soft" }, program(agent)),
      make("span", { class: "age" }, ageText(row.lock)),
    );
    return element;
  }
  const open = unfolded(row);
  element.setAttribute("aria-expanded", open);
  element.append(make("span", { class: "twist" }, open ? "▾" : "▸"), make("span", { class: "typed" }, row.label));
  if (row.held && !open) element.append(make("span", { class: "tag held" }, `${row.held} held`));
  if (row.waits) element.append(make("span", { class: "tag waits" }, `${row.waits} waiting`));
  return element;
}

function fold(row, open) {
  view.folds.set(row.key, open);
  flatten();
  showTree();
}

function pick(index) {
  const row = view.rows[index];
  if (!row) return;
  view.picked = row.key;
  const box = $("tree");
  const top = index * ROW;
  if (top < box.scrollTop) box.scrollTop = top;
  if (top + ROW > box.scrollTop + box.clientHeight) box.scrollTop = top + ROW - box.clientHeight;
  showTree();
}

function treeKeys(event) {
  const at = view.rows.findIndex((row) => row.key === view.picked);
  const row = view.rows[at];
  const page = Math.floor($("tree").clientHeight / ROW);
  const moves = { ArrowDown: at + 1, ArrowUp: Math.max(0, at - 1), PageDown: Math.min(at + page, view.rows.length - 1), PageUp: Math.max(0, at - page), Home: 0, End: view.rows.length - 1 };
  if (event.key in moves) pick(moves[event.key]);
  else if (!row) return;
  else if (event.key === "ArrowRight" && !row.lock) unfolded(row) ? pick(at + 1) : fold(row, true);
  else if (event.key === "ArrowLeft" && !row.lock && unfolded(row)) fold(row, false);
  else if (event.key === "ArrowLeft") pick(view.rows.findLastIndex((each, index) => index < at && each.depth < row.depth));
  else if (event.key === "Enter" || event.key === " ") row.lock ? showDetails(row.lock.agent) : fold(row, !unfolded(row));
  else return;
  event.preventDefault();
}

// --- The wait-for graph ---------------------------------------------------------------------------

const BOX = { width: 186, height: 40, across: 46, down: 10 };

// Each agent is drawn one column to the right of the agents that it waits for. Agents that are not waiting are on the left, and
// beside each one all agents that wait for it, directly or indirectly. An agent that waits for several is drawn once.
function layout() {
  const behind = new Map();
  const ahead = new Map();
  const put = (map, key, edge) => (map.has(key) ? map.get(key).push(edge) : map.set(key, [edge]));
  for (const edge of tables.waits.values()) {
    put(behind, edge.holder, edge);
    put(ahead, edge.waiter, edge);
  }
  const everybody = new Set([...behind.keys(), ...ahead.keys()]);
  const roots = [...everybody].filter((key) => tables.agents.get(key)?.root);
  const places = new Map();
  let [top, columns] = [0, 0];
  // Agents in a cycle have no root.
  for (const start of [...roots.sort((a, b) => (behind.get(b)?.length ?? 0) - (behind.get(a)?.length ?? 0)), ...everybody]) {
    if (places.has(start) || places.size >= MOST_BOXES) continue;
    const used = [];
    const place = (key, column) => {
      const row = top + (used[column] ?? 0);
      used[column] = (used[column] ?? 0) + 1;
      places.set(key, { column, x: column * (BOX.width + BOX.across) + 4, y: row * (BOX.height + BOX.down) + 4 });
    };
    place(start, 0);
    const todo = [start];
    for (let at = 0; at < todo.length; at++) {
      for (const edge of behind.get(todo[at]) ?? []) {
        if (places.has(edge.waiter) || places.size >= MOST_BOXES) continue;
        place(edge.waiter, places.get(todo[at]).column + 1);
        todo.push(edge.waiter);
      }
    }
    top += Math.max(...used);
    columns = Math.max(columns, used.length);
  }
  return { places, ahead, everybody, width: columns * (BOX.width + BOX.across) + 8, height: top * (BOX.height + BOX.down) + 8 };
}

function showGraph() {
  const { places, ahead, everybody, width, height } = layout();
  $("graph-note").textContent = everybody.size > places.size ? `${places.size} of ${everybody.size.toLocaleString("en")}` : "";
  if (!places.size) {
    fill($("graph"), make("p", { class: "none" }, view.at ? "No transaction is waiting." : ""));
    return;
  }
  const svg = draw("svg", { width, height, role: "img", "aria-label": `${everybody.size} wait or are waited for` });
  const tip = addTip(svg);
  for (const edges of ahead.values()) {
    for (const edge of edges) {
      const from = places.get(edge.waiter);
      const to = places.get(edge.holder);
      if (!from || !to) continue;
      const isLeft = to.x < from.x; // or it goes round on the right
      const [x1, y1] = [from.x + (isLeft ? 0 : BOX.width), from.y + BOX.height / 2];
      const [x2, y2] = [to.x + BOX.width, to.y + BOX.height / 2];
      const bend = isLeft ? (x1 - x2) / 2 : 30;
      const first = isLeft ? x1 - bend : Math.max(x1, x2) + bend;
      svg.append(draw("path", { class: `edge${edge.ahead ? " ahead" : ""}`, d: `M${x1} ${y1} C${first} ${y1} ${isLeft ? x2 + bend : first} ${y2} ${x2} ${y2}`, "marker-end": tip }));
    }
  }
  for (const [key, { x, y }] of places) {
    const agent = tables.agents.get(key) ?? { label: "somebody" };
    const wish = ahead.get(key)?.[0];
    const says = wish ? (wish.id.length ? `waits: ${wishOf(wish)}` : "waits in another transaction") : "is not waiting";
    const kinds = ["box", agent.root && "root", view.flashing.has(key) && "flash"].filter(Boolean).join(" ");
    const group = draw("g", { class: kinds, transform: `translate(${x} ${y})`, "data-agent": key });
    group.append(
      draw("title", {}, `${agent.label} ${program(agent)}\n${says}`),
      draw("rect", { width: BOX.width, height: BOX.height, rx: 6 }),
      draw("text", { x: 9, y: 17 }, short(agent.label, 27)),
      draw("text", { x: 9, y: 32, class: "soft" }, short(says, 32)),
    );
    svg.append(group);
  }
  fill($("graph"), svg);
}

// --- Deadlocks ------------------------------------------------------------------------------------

const clientOf = (record) => record.client.replace(/ \([^()]*, pid \d+\)$/, "");
const wishOf = (record) => (record.election === undefined ? `${record.mode} ${pathOf(record)}` : record.typed);

// The edge that was broken closes the cycle; the steps are the same as in `locks deadlocks` and the simulator.
const edgesOf = ({ cycle }) => [...cycle.slice(1), ...cycle.slice(0, 1)];

function ring(deadlock, step) {
  const { steps } = deadlock;
  const edges = edgesOf(deadlock);
  const last = step === steps.length - 1;
  const count = edges.length;
  const names = edges.map((edge) => clientOf(edge.waiter));
  const agents = [...deadlock.agents.slice(1), ...deadlock.agents.slice(0, 1)];
  const [width, height, radius] = count < 3 ? [440, 120, 20] : [440, 250, count > 12 ? 10 : 18];
  const [middle, centre] = [width / 2, height / 2];
  const place = (index) => {
    const angle = (2 * Math.PI * index) / count - (count < 3 ? Math.PI : Math.PI / 2);
    return [middle + Math.cos(angle) * 108, centre + Math.sin(angle) * (centre - 40)];
  };
  const sideOf = (x) => (x > middle + 20 ? "start" : x < middle - 20 ? "end" : "middle");
  // A text beside the ring, as long as there is room for it; the whole text is its title.
  const caption = (text, most, x, y, kind) => {
    const side = sideOf(x);
    const room = { start: width - x, end: x, middle: 2 * Math.min(x, width - x) }[side];
    const shown = short(text, Math.max(2, Math.min(most, Math.floor(room / LETTER))));
    return draw("text", { class: kind, x, y, "text-anchor": side }, shown, draw("title", {}, text));
  };
  const lowest = Math.max(...names.map((_, index) => place(index)[1])) + (count < 3 ? 60 : 40);
  const svg = draw("svg", { class: "ring", viewBox: `0 0 ${width} ${lowest}`, role: "img", "aria-label": steps[step] });
  const tip = addTip(svg);
  edges.forEach((edge, index) => {
    const [x1, y1] = place(index);
    const [x2, y2] = place((index + 1) % count);
    const length = Math.hypot(x2 - x1, y2 - y1) || 1;
    const [ux, uy] = [(x2 - x1) / length, (y2 - y1) / length];
    const bulge = count < 3 ? 40 : 14; // to the outside
    const bend = [(x1 + x2) / 2 + uy * bulge, (y1 + y2) / 2 - ux * bulge];
    const toward = (x, y) => {
      const far = Math.hypot(bend[0] - x, bend[1] - y) || 1;
      return [x + ((bend[0] - x) * (radius + 2)) / far, y + ((bend[1] - y) * (radius + 2)) / far];
    };
    const broken = last && index === count - 1;
    const later = index > step ? " later" : "";
    const kind = later || (broken ? " broken" : index === step ? " now" : "");
    svg.append(draw("path", { class: `edge${kind}`, d: `M${toward(x1, y1)} Q${bend} ${toward(x2, y2)}`, "marker-end": tip }));
    if (count > 8) return;
    const beyond = count < 3 ? 12 : 18;
    const [x, y] = [bend[0] + uy * beyond, bend[1] - ux * beyond];
    svg.append(caption(wishOf(edge.waiter), 24, x, y + 4, `soft${later}`));
  });
  names.forEach((name, index) => {
    const [x, y] = place(index);
    const side = sideOf(x);
    const aside = { start: radius + 8, end: -radius - 8, middle: 0 }[side];
    const above = side !== "middle" ? 4 : y < centre ? -radius - 8 : radius + 16;
    svg.append(
      draw("circle", { cx: x, cy: y, r: radius, class: last && agents[index] === deadlock.agent_key ? "yields" : "" }),
      draw("text", { x, y: y + 4, "text-anchor": "middle" }, String(index + 1)),
    );
    if (count <= 12) svg.append(caption(name, 16, x + aside, y + above, ""));
  });
  return svg;
}

function card(key, deadlock, open) {
  const { steps, yields } = deadlock;
  const element = make("details", { class: "deadlock", "data-key": key });
  const when = new Date(deadlock.at * 1000).toLocaleTimeString("en-GB");
  const title = `${yields}: ${deadlock.action}, a cycle of ${deadlock.cycle.length}`;
  element.append(make("summary", {}, make("span", { class: "tag bad" }, when), make("span", { class: "title" }, title)));
  element.open = open;
  const body = make("div");
  let playing = 0;
  const go = (to) => {
    view.opened.set(key, true); // also when new ones arrive
    view.steps.set(key, Math.min(Math.max(to, 0), steps.length - 1));
    show();
  };
  const play = (step) => {
    const goesOn = step < steps.length - 1;
    view.playing = goesOn ? key : null; // meanwhile no new card pushes this one away
    go(step);
    if (goesOn) playing = setTimeout(play, 1300, step + 1);
    else showDeadlocks([]);
  };
  const show = () => {
    const step = view.steps.get(key) ?? steps.length - 1;
    const button = (text, act) => {
      const onclick = () => {
        clearTimeout(playing);
        view.playing = null;
        act();
        showDeadlocks([]);
        [...body.querySelectorAll("button")].find((each) => each.textContent === text).focus();
      };
      return make("button", { type: "button", onclick }, text);
    };
    const buttons = [button("Play", () => play(0)), " ", button("Back", () => go(step - 1)), " ", button("Next", () => go(step + 1))];
    const report = make("details", { class: "report" }, make("summary", {}, `As ${deadlock.servers.join(", ")} reported it`), make("pre", {}, deadlock.text));
    const place = make("span", { class: "soft" }, ` ${step + 1} of ${steps.length}`);
    fill(body, ring(deadlock, step), make("p", { class: "step", "aria-live": "polite" }, `${step + 1}. ${steps[step]}`), make("div", {}, ...buttons, place), report);
  };
  if (open) show();
  element.addEventListener("toggle", () => {
    if (element.open !== open) view.opened.set(key, element.open);
    if (element.open && !body.hasChildNodes()) show();
  });
  element.append(body);
  return element;
}

function showDeadlocks(fresh) {
  const all = [...tables.deadlocks].sort(([, a], [, b]) => b.at - a.at);
  const old = new Map([...$("deadlocks").children].map((each) => [each.dataset.key, each]));
  if (view.paused || view.playing !== null) {
    const hidden = all.filter(([, deadlock]) => deadlock.at > view.newest).length;
    $("deadlocks-note").textContent = hidden ? `paused, ${hidden} more since then` : "paused";
    return;
  }
  const newest = all.slice(0, MOST_CARDS);
  view.newest = newest[0]?.[1].at ?? 0;
  const cards = newest.map(([key, deadlock], index) => {
    const open = view.opened.get(key) ?? index === 0;
    const known = old.get(key);
    const element = known?.dataset.servers === String(deadlock.servers) && known.open === open ? known : card(key, deadlock, open);
    element.dataset.servers = deadlock.servers;
    if (fresh.includes(key)) {
      element.classList.add("flash");
      setTimeout(() => element.classList.remove("flash"), 4000);
    }
    return element;
  });
  $("deadlocks-note").textContent = all.length > newest.length ? `the last ${newest.length} of ${all.length}` : "";
  if (!cards.length) cards.push(make("p", { class: "none" }, view.at ? "The servers remember none." : ""));
  // Existing cards are not touched: one of them may have the focus.
  let next = $("deadlocks").firstChild;
  for (const element of cards) {
    if (element === next) next = next.nextSibling;
    else $("deadlocks").insertBefore(element, next);
  }
  while (next) {
    const { nextSibling } = next;
    next.remove();
    next = nextSibling;
  }
}

// --- The rest ---------------------------------------------------------------------------------------

function showAges() {
  // Elections have a separate list: candidates wait for as long as another one leads.
  const all = [...tables.locks].filter(([, lock]) => lock.since && lock.election === undefined && matches(lock));
  for (const [id, held] of [["waits", false], ["holds", true]]) {
    const longest = all.map(([, lock]) => lock).filter((lock) => lock.held === held).sort((a, b) => age(b) - age(a)).slice(0, LONGEST);
    const items = longest.map((lock) => {
      const what = make("span", { class: "what" }, make("span", { class: "typed" }, pathOf(lock)), ` ${labelOf(lock.agent)}`);
      return opens(lock.agent, what, make("span", { class: "age" }, ageText(lock)));
    });
    list(id, items);
  }
}

// Who waits for nobody, with the number of those that wait for it, directly or not: they would get on if it did.
function showRoots() {
  const behind = new Map();
  for (const { holder, waiter, election } of tables.waits.values()) {
    if (election !== undefined) continue; // candidates stand by
    behind.has(holder) ? behind.get(holder).push(waiter) : behind.set(holder, [waiter]);
  }
  const blocked = (root) => {
    const seen = new Set([root]);
    for (const each of seen) for (const waiter of behind.get(each) ?? []) seen.add(waiter);
    return seen.size - 1;
  };
  const roots = [...behind.keys()].filter((key) => tables.agents.get(key)?.root).map((key) => [key, blocked(key)]);
  const items = roots.sort(([, a], [, b]) => b - a).slice(0, LONGEST).map(([key, number]) => {
    const agent = tables.agents.get(key);
    const what = make("span", { class: "what" }, [agent.label, program(agent)].filter(Boolean).join(", "));
    return opens(key, what, make("span", { class: "age" }, `${number.toLocaleString("en")} behind it`));
  });
  list("roots", items);
}

// A row that opens the details of an agent.
const opens = (agent, ...parts) => make("li", {}, make("button", { type: "button", "data-agent": agent }, ...parts));

// Replaces the contents of a list and keeps the focus.
function list(id, items) {
  if (!items.length) items.push(make("li", { class: "none" }, view.at ? "None." : ""));
  const focused = [...$(id).children].findIndex((each) => each.contains(document.activeElement));
  fill($(id), ...items);
  if (focused >= 0) items[Math.min(focused, items.length - 1)].querySelector("button")?.focus();
}

function showLeaders() {
  const elections = [...tables.elections.values()].sort((a, b) => byName.compare(a.name, b.name));
  const items = elections.map((election) => {
    const agent = tables.agents.get(election.leader);
    const who = agent ? ` ${[agent.label, program(agent)].filter(Boolean).join(", ")}` : " no leader";
    const what = make("span", { class: "what" }, make("span", { class: "typed" }, election.name), who);
    const followers = [
      election.term !== null && `term ${election.term}`,
      election.candidates && plural(election.candidates, "candidate", "candidates"),
      election.workers && plural(election.workers, "worker", "workers"),
    ];
    const names = election.followers.map(({ role, member, program, pid, node }) => `${role}: ${member}, ${program}, pid ${pid}, ${node}`);
    const more = make("span", { class: "soft", title: names.join("\n") }, followers.filter(Boolean).join(", "));
    if (!agent) return make("li", {}, what, more);
    return opens(election.leader, what, more, make("span", { class: "age" }, ageText(election)));
  });
  list("leaders", items);
  const groups = [...tables.groups.values()].sort((a, b) => byName.compare(a.name, b.name));
  const rows = groups.map((group) => {
    const what = make("span", { class: "what", title: `scope ${group.scope}` }, make("span", { class: "typed" }, group.name));
    return make("li", {}, what, make("span", { class: "age" }, `${plural(group.members, "member", "members")} on ${plural(group.nodes, "node", "nodes")}`));
  });
  list("groups", rows);
  const { elections: led = 0, groups: all = 0, unheard = 0 } = tables.state.get("cluster") ?? {};
  const parts = [led > elections.length && `${elections.length} of ${led}`, unheard && `${plural(unheard, "node does", "nodes do")} not answer`];
  $("leaders-note").textContent = parts.filter(Boolean).join(", ");
  $("groups-note").textContent = all > groups.length ? `${groups.length} of ${all}` : "";
}

function showServers() {
  const head = ["server", "up for", "clients", "locks", "waiting", "deadlocks", "clock"];
  const number = (text) => make("td", { class: "number" }, String(text));
  const rows = [...tables.servers].sort().map(([name, server]) => {
    if (server.silent) return make("tr", { class: "bad" }, make("td", {}, name), make("td", { colspan: 6 }, server.silent));
    const up = duration(view.at + server.ahead - server.started);
    const { entries, waiting } = server.table;
    return make("tr", { title: `${server.program}, version ${server.version}` }, make("td", {}, name), number(up), number(server.clients), number(entries), number(waiting), number(server.deadlocks), number(`${server.ahead >= 0 ? "+" : ""}${server.ahead} s`));
  });
  const headings = head.map((text, index) => make("th", index ? { class: "number", scope: "col" } : { scope: "col" }, text));
  fill($("servers"), make("thead", {}, make("tr", {}, ...headings)), make("tbody", {}, ...rows));
}

function showState() {
  const state = tables.state.get("cluster");
  if (!state) return;
  const silent = [...tables.servers].filter(([, server]) => server.silent).map(([name]) => name);
  const text = `${state.answered} of ${plural(state.servers, "lock server", "lock servers")}`;
  const pill = $("quorum");
  pill.className = !view.live ? "" : state.enough && !silent.length ? "good" : "bad";
  const lacks = silent.length ? `, without ${silent.join(", ")}` : "";
  pill.textContent = view.live ? (state.enough ? text + lacks : `${text}: locks can NOT be taken, ${state.needed} ${state.needed === 1 ? "is" : "are"} needed`) : "connecting";
  let [held, waiting] = [0, 0];
  for (const lock of tables.locks.values()) lock.held ? (held += 1) : (waiting += lock.election === undefined); // candidates stand by
  $("counts").textContent = `${plural(held, "lock", "locks")} held, ${waiting.toLocaleString("en")} waited for`;
  $("locks-note").textContent = [view.search && `${tree.shown.toLocaleString("en")} found`, state.left_out && `${state.left_out.toLocaleString("en")} more are not shown`].filter(Boolean).join(", ");
  if (state.error) notice(state.error);
}

function takeRates() {
  const counted = { requests: 0, grants: 0, waits: 0, deadlocks: 0 };
  const lives = [];
  let [entries, waiting] = [0, 0];
  for (const [name, server] of tables.servers) {
    if (server.silent) continue;
    lives.push(`${name} ${server.started}`);
    for (const kind of ["requests", "grants", "waits"]) counted[kind] += server.table[kind];
    counted.deadlocks += server.deadlocks;
    entries += server.table.entries;
    waiting += server.table.waiting;
  }
  const who = lives.sort().join();
  const { before } = view;
  view.before = { counted, who, at: view.at };
  const push = (name, value) => {
    const known = view.rates.get(name) ?? [];
    known.push(value);
    view.rates.set(name, known.slice(-SAMPLES));
  };
  if (before?.who === who && view.at > before.at) {
    for (const [kind, value] of Object.entries(counted)) push(`${kind} per second`, (value - before.counted[kind]) / (view.at - before.at));
  }
  push("in the tables", entries);
  push("waiting", waiting);
}

function showRates() {
  const parts = [...view.rates].flatMap(([name, values]) => {
    const most = Math.max(...values, 1);
    const wide = Math.max(values.length, 20); // grows until it is full
    const points = values.map((value, index) => `${wide - values.length + index} ${(22 - (20 * value) / most).toFixed(1)}`);
    const line = draw("svg", { viewBox: `0 0 ${wide - 1} 24`, preserveAspectRatio: "none", "aria-hidden": true }, draw("path", { d: `M${points.join("L")}` }));
    const last = values.at(-1);
    return [make("span", {}, name), line, make("span", { class: "number" }, last >= 10 || Number.isInteger(last) ? Math.round(last).toLocaleString("en") : last.toFixed(1))];
  });
  fill($("rates"), ...parts);
}

function showDetails(key) {
  view.agent = key;
  fillDetails();
  $("break").hidden = !view.mayBreak;
  $("break-said").textContent = "";
  if (!$("details").open) $("details").showModal();
}

function fillDetails() {
  const agent = tables.agents.get(view.agent);
  if (!agent) {
    $("details-title").textContent = "This transaction has ended.";
    fill($("details-body"));
    return;
  }
  $("details-title").textContent = agent.label;
  const list = make("dl");
  const say = (head, ...text) => list.append(make("dt", {}, head), make("dd", {}, ...text));
  say("transaction", make("span", { class: "typed" }, agent.name));
  if (agent.program) say("program", program(agent));
  if (agent.address) say("connected from", agent.address);
  const own = [...tables.locks.values()].filter((lock) => lock.agent === view.agent);
  for (const lock of own.slice(0, 20)) {
    say(lock.held ? "holds" : "waits for", make("span", { class: "typed" }, `${lock.mode} ${lock.typed}`), ` for ${ageText(lock)}, on ${lock.servers.join(", ")}`);
  }
  if (own.length > 20) say("", `and ${own.length - 20} more`);
  const edges = [...tables.waits.values()];
  const names = (keys) => [...new Set(keys)].slice(0, 10).map(labelOf).join(", ");
  const ahead = edges.filter((edge) => edge.waiter === view.agent);
  const behind = edges.filter((edge) => edge.holder === view.agent);
  if (ahead.length) say("behind", names(ahead.map((edge) => edge.holder)));
  if (behind.length) say("ahead of", names(behind.map((edge) => edge.waiter)));
  if (agent.root) say("", "It is not waiting for any lock: it is still working, or it forgot to release.");
  fill($("details-body"), list);
}

async function breakTransaction(event) {
  event.preventDefault();
  const answer = await fetch("break", { method: "POST", headers: { ...proof(), "Content-Type": "application/json" }, body: JSON.stringify({ agent: view.agent, reason: $("reason").value }) });
  const said = await answer.json().catch(() => ({ error: answer.statusText }));
  $("break-said").textContent = answer.ok ? `The transaction ${said.broken} was ended.` : said.error;
  if (answer.ok) $("reason").value = "";
}

function notice(text) {
  $("notice").hidden = !text;
  $("notice").textContent = text;
}

// --- What the server sends ----------------------------------------------------------------------------

let fresh = []; // deadlocks that the user has not seen
let changed = new Set(); // tables
let due = false;

function take(message) {
  if (message.first) {
    for (const table of Object.values(tables)) table.clear();
    changed = new Set(TABLES);
    view.before = null;
  }
  for (const [name, keys] of Object.entries(message.gone)) {
    for (const key of keys) tables[name].delete(key);
    changed.add(name);
  }
  for (const [name, rows] of Object.entries(message.put)) {
    for (const [key, row] of Object.entries(rows)) {
      if (name === "deadlocks" && !tables.deadlocks.has(key) && view.at && !message.whole) fresh.push(key);
      tables[name].set(key, row);
    }
    changed.add(name);
  }
  if (!message.last) return;
  view.at = message.at;
  view.got = performance.now();
  view.mayBreak = message.may_break;
  view.live = true;
  notice("");
  takeRates();
  for (const key of fresh) {
    const agents = tables.deadlocks.get(key)?.agents ?? [];
    for (const agent of agents) view.flashing.add(agent);
    setTimeout(() => agents.forEach((agent) => view.flashing.delete(agent)), 4000);
  }
  soon();
}

function soon() {
  if (!due) requestAnimationFrame(show);
  due = true;
}

function show() {
  due = false;
  if (view.pressed) return; // nothing moves during a click
  const has = (...names) => names.some((name) => changed.has(name));
  if (has("locks", "agents")) {
    grow();
    flatten();
  }
  showTree();
  if (has("waits", "agents") || view.flashing.size) showGraph();
  if (has("waits", "agents")) showRoots();
  if (has("deadlocks")) {
    showDeadlocks(fresh);
    if (fresh.length) $("said").textContent = `${plural(fresh.length, "deadlock", "deadlocks")} resolved`;
  }
  showAges();
  showLeaders();
  showServers();
  showState();
  showRates();
  if ($("details").open) fillDetails();
  fresh = [];
  changed.clear();
}

function proof() {
  const token = sessionStorage.getItem("token");
  return token ? { "X-Locks-Token": token } : {};
}

async function listen() {
  const answer = await fetch("events", { headers: proof() });
  if (!answer.ok) {
    const said = await answer.json().catch(() => ({ error: answer.statusText }));
    $("ask-token").hidden = answer.status !== 401;
    throw new Error(said.error);
  }
  $("ask-token").hidden = true;
  let whole = true;
  let rest = "";
  for await (const text of answer.body.pipeThrough(new TextDecoderStream())) {
    const events = (rest + text).split("\n\n");
    rest = events.pop();
    for (const event of events) {
      if (!event.startsWith("data: ")) continue;
      const message = JSON.parse(event.slice(6));
      take({ ...message, whole });
      if (message.last) whole = false;
    }
  }
  throw new Error("the connection was closed");
}

async function watch() {
  for (let pause = 500; ; pause = Math.min(pause * 2, 8000)) {
    const begun = performance.now();
    try {
      await listen();
    } catch (error) {
      view.live = false;
      showState();
      $("quorum").className = "bad";
      $("quorum").textContent = "not connected";
      notice(`The page is out of date: ${error.message}.`);
      if (performance.now() - begun > 10000) pause = 500;
    }
    await new Promise((done) => {
      setTimeout(done, pause);
      again = done;
    });
  }
}

let again = () => {};

// --- The beginning ------------------------------------------------------------------------------------

const given = /^#token=(.+)$/.exec(location.hash);
if (given) {
  sessionStorage.setItem("token", given[1]);
  history.replaceState(null, "", location.pathname);
}
grow();
$("tree").addEventListener("scroll", showTree, { passive: true });
$("tree").addEventListener("keydown", treeKeys);
$("tree").addEventListener("click", (event) => {
  const index = event.target.closest(".row")?.dataset.index;
  const row = view.rows[index];
  if (!row) return;
  pick(Number(index));
  row.lock ? showDetails(row.lock.agent) : fold(row, !unfolded(row));
});
$("search").addEventListener("input", () => {
  view.search = $("search").value.trim();
  view.folds.clear();
  $("tree").scrollTop = 0;
  changed.add("locks");
  show();
});
for (const id of ["graph", "waits", "roots", "holds", "leaders"]) {
  $(id).addEventListener("click", (event) => {
    const key = event.target.closest("[data-agent]")?.dataset.agent;
    if (key) showDetails(key);
  });
}
$("pause").addEventListener("click", () => {
  view.paused = !view.paused;
  $("pause").setAttribute("aria-pressed", view.paused);
  showDeadlocks([]);
});
// The digits are the panels, in their order.
const panels = [...document.querySelectorAll("main > section")];
panels.forEach((panel, index) => {
  panel.tabIndex = -1;
  panel.setAttribute("aria-keyshortcuts", index + 1);
});
document.addEventListener("keydown", (event) => {
  if (event.ctrlKey || event.altKey || event.metaKey || $("details").open) return;
  if (event.key === "/" && !event.target.closest("input")) {
    event.preventDefault();
    $("search").focus();
  }
  if (/^[1-9]$/.test(event.key) && !event.target.closest("input")) {
    const panel = panels[event.key - 1];
    (panel?.querySelector("[tabindex='0'], .ages button") ?? panel)?.focus();
  }
  if (event.key === "Escape" && event.target === $("search")) {
    $("search").value = "";
    $("search").dispatchEvent(new Event("input"));
    $("tree").focus();
  }
});
$("break").addEventListener("submit", breakTransaction);
$("ask-token").addEventListener("submit", (event) => {
  event.preventDefault();
  sessionStorage.setItem("token", $("token").value.trim());
  again();
});
addEventListener("resize", showTree);
addEventListener("pointerdown", () => (view.pressed = true), true);
for (const name of ["pointerup", "pointercancel"]) {
  const released = () => {
    view.pressed = false;
    soon();
  };
  addEventListener(name, () => setTimeout(released), true); // after the click
}
setInterval(() => {
  if (!view.live || view.pressed || document.hidden) return;
  showTree();
  showAges();
  showLeaders();
}, 1000);
watch();
