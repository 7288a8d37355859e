"use strict";

document.documentElement.classList.add("script");

const view = document.getElementById("view");
const viewTitle = document.getElementById("view-title");
const viewBody = document.getElementById("view-body");
let opener = null;

/** Gives an element attributes and children; text is never read as HTML. */
function filled(element, attributes, children) {
  for (const [name, value] of Object.entries(attributes)) {
    element.setAttribute(name, value);
  }
  element.append(...children);
  return element;
}

function make(tag, attributes, ...children) {
  return filled(document.createElement(tag), attributes, children);
}

function svg(tag, attributes, ...children) {
  return filled(document.createElementNS("http://www.w3.org/2000/svg", tag), attributes, children);
}

function say(text) {
  document.getElementById("said").textContent = text;
}

// Sorting

for (const table of document.querySelectorAll("table.numbers")) {
  const headings = [...table.tHead.rows[0].cells];
  headings.forEach((heading, column) => {
    const button = make("button", { type: "button" }, heading.textContent);
    heading.replaceChildren(button);
    button.addEventListener("click", () => {
      const first = heading.dataset.first === "ascending" ? "ascending" : "descending";
      const other = first === "ascending" ? "descending" : "ascending";
      const direction = heading.getAttribute("aria-sort") === first ? other : first;
      headings.forEach((one) => one.removeAttribute("aria-sort"));
      heading.setAttribute("aria-sort", direction);
      sort(table, column, direction);
      say(`${table.caption.textContent}: sorted by ${button.textContent}, ${direction}`);
    });
  });
}

/** Groups of rows by the cells of their first rows; those without a number stay last. */
function sort(table, column, direction) {
  const sign = direction === "ascending" ? 1 : -1;
  const value = (body) => body.rows[0].cells[column].dataset.value;
  const bodies = [...table.tBodies].sort((one, other) => {
    const [a, b] = [value(one), value(other)];
    if (a === "" || b === "") {
      return (a === "") - (b === "");
    }
    return sign * (Number(a) - Number(b));
  });
  table.append(...bodies);
}

// Filtering by label

const filter = document.getElementById("filter-text");
const labeled = [...document.querySelectorAll("tbody[data-label]")];
if (labeled.length) {
  document.getElementById("filter").hidden = false;
  filter.addEventListener("input", () => {
    const words = filter.value.split(/[\s,]+/).filter(Boolean);
    const labels = new Set();
    const shown = new Set();
    for (const body of labeled) {
      const label = body.dataset.label;
      body.hidden = words.length > 0 && !words.some((word) => label.includes(word));
      labels.add(label);
      if (!body.hidden) {
        shown.add(label);
      }
    }
    document.getElementById("filter-count").value = words.length ? `${shown.size} of ${labels.size}` : "";
  });
}

// Numbers become links

for (const cell of document.querySelectorAll("[data-link]")) {
  const link = make("a", { class: "runs", href: "#" + cell.dataset.link, "aria-haspopup": "dialog" });
  link.append(...cell.childNodes);
  cell.append(link);
}

// The runs

let data = null;

/** Reads the page's data, when they are first asked for. */
function readData() {
  if (data === null) {
    data = JSON.parse(document.getElementById("data").textContent);
    for (const names of [data.titles, data.tasks, data.effects, data.explanations, data.names]) {
      Object.setPrototypeOf(names, null); // a label may be called like a property of objects
    }
    data.byId = new Map(Array.from({ length: data.count }, (_, i) => [field("id", i), i]));
  }
}

/** A field of the i-th run, null where it has none. */
function field(name, i) {
  const column = data.runs[name];
  if (column === undefined) {
    return null;
  }
  return Array.isArray(column) ? column[i] : column.values[column.index ? column.index[i] : 0];
}

/** Fields whose names begin with ``prefix.``, as an object without what the run does not have. */
function fields(prefix, i) {
  const names = Object.keys(data.runs).filter((name) => name.startsWith(prefix + ".") && field(name, i) !== null);
  return Object.fromEntries(names.map((name) => [name.slice(prefix.length + 1), field(name, i)]));
}

function select(test) {
  return Array.from({ length: data.count }, (_, i) => i).filter(test);
}

const titleOf = (column) => data.titles[column] || column;
const nameOf = (label) => data.names[label] || label;
const runsHash = (label, column) => `runs/${encodeURIComponent(label)}/${encodeURIComponent(column)}`;

function heading(text) {
  return make("h3", {}, text);
}

function table(headings, rows, caption) {
  const head = make("thead", {}, make("tr", {}, ...headings.map((text) => make("th", { scope: "col" }, text))));
  const region = { class: "scroll", role: "region", "aria-label": caption, tabindex: "0" };
  return make("div", region, make("table", {}, make("caption", { class: "unseen" }, caption), head, make("tbody", {}, ...rows)));
}

function text(value) {
  if (Array.isArray(value)) {
    return value.map(text).join(", ");
  }
  if (value !== null && typeof value === "object") {
    return Object.entries(value).map(([name, inner]) => `${name} ${text(inner)}`).join(", ");
  }
  return String(value);
}

function properties(pairs) {
  const entries = Array.isArray(pairs) ? pairs : Object.entries(pairs);
  const rows = entries.map(([name, value]) =>
    make("div", {}, make("dt", {}, name.replaceAll("_", " ")), make("dd", {}, value instanceof Node ? value : text(value))),
  );
  return make("dl", { class: "properties" }, ...rows);
}

function runTable(indices, caption) {
  const hasTasks = new Set(indices.map((i) => field("task", i))).size > 1;
  const rows = indices.map((i) => {
    const { learning_rate, weight_decay } = field("training", i);
    const counts = field("counts", i);
    const task = hasTasks ? [titleOf(field("task", i))] : [];
    const chosen = [field("change", i), field("seed", i), learning_rate, weight_decay];
    const cells = [...task, ...chosen, field("status", i), field("result", i), counts ? "yes" : ""];
    const link = make("a", { href: "#run-" + field("id", i) }, field("id", i));
    const row = make("tr", counts ? { class: "counting" } : {}, make("th", { scope: "row", class: "mono" }, link));
    row.append(...cells.map((value) => make("td", {}, String(value))));
    return row;
  });
  const chosen = ["Setting", "Seed", "Learning rate", "Weight decay"];
  const headings = ["Run", ...(hasTasks ? ["Task"] : []), ...chosen, "Status", "Result", "Counts"];
  return table(headings, rows, caption);
}

function explanation(label) {
  const rows = data.explanations[label].map(([letter, name, what, equation, source]) =>
    make(
      "div",
      {},
      make("dt", {}, make("b", { class: "mono" }, letter || "\u2014"), " " + name),
      make("dd", {}, what, make("code", {}, equation), make("span", { class: "source" }, source)),
    ),
  );
  return [heading("The label, letter by letter"), make("dl", { class: "letters" }, ...rows)];
}

// What the view shows: a title and elements

function showRuns(label, column) {
  const tasks = data.tasks[column] || [column];
  const indices = select((i) => field("label", i) === label && (column === "" || tasks.includes(field("task", i))));
  if (!indices.length) {
    return [`${nameOf(label)}: ${titleOf(column)}`, [make("p", {}, "This report holds no such runs.")]];
  }
  const done = indices.filter((i) => ["finished", "diverged"].includes(field("status", i)));
  const cell = document.querySelector(`td[data-link="${CSS.escape(runsHash(label, column))}"]`);
  const rule = done.every((i) => field("counts", i))
    ? ""
    : " Of each setting and seed the run counts whose learning rate and weight decay were chosen.";
  const parts = [
    column !== "" && cell ? make("p", { class: "result" }, cell.textContent) : "",
    make("p", {}, `${done.length} of ${indices.length} jobs have a result.${rule}`),
    heading("Runs"),
    runTable(indices, "Runs behind the number"),
    ...explanation(label),
  ];
  return [`${nameOf(label)}: ${column === "" ? "all runs" : titleOf(column)}`, parts];
}

function showEffect(name, quantity) {
  const effect = data.effects[`${name}/${quantity}`];
  if (!effect) {
    return null;
  }
  const link = (label) => make("a", { href: "#" + runsHash(label, quantity) }, nameOf(label));
  const rows = effect.rows.map(([labels, difference]) =>
    make("tr", {}, ...labels.map((label) => make("td", { class: "mono" }, link(label))), make("td", {}, difference)),
  );
  return [`${name}: ${titleOf(quantity)}`, [make("p", {}, effect.text), table(effect.headings, rows, "Labels behind the effect")]];
}

function showRun(id) {
  const i = data.byId.get(id);
  if (i === undefined) {
    return [`Run ${id}`, [make("p", {}, "This report holds no run of this id.")]];
  }
  const [label, task, seed, status] = ["label", "task", "seed", "status"].map((name) => field(name, i));
  const parts = [
    make("p", {}, make("a", { href: "#" + runsHash(label, task) }, `All runs of ${nameOf(label)} on ${titleOf(task)}`)),
    properties([
      ["Status", status + (field("counts", i) ? ", counts in the table" : "")],
      ["Result", field("result", i) || "none"],
      ...(field("change", i) ? [["Setting", field("change", i)]] : []),
      ["Folder", status === "missing" ? "none yet" : make("code", {}, `${data.folder}/${id}`)],
    ]),
  ];
  if (field("error", i)) {
    parts.push(make("p", { class: "error" }, field("error", i)));
  }
  parts.push(heading("Train it again"), make("code", { class: "command" }, command(i)));
  const curve = data.curves[i];
  if (curve) {
    const names = Object.keys(curve).filter((name) => name !== "step");
    parts.push(heading("Curve"), make("div", { class: "curves" }, ...names.map((name) => plot(curve.step, curve[name], name))));
  }
  const add = (title, values) => values && Object.keys(values).length && parts.push(heading(title), properties(values));
  add("Metrics", fields("metrics", i));
  for (const { name, settings, values, details } of data.measurements[i] || []) {
    const under = text(settings);
    add(`Measured since: ${name}${under ? `, ${under}` : ""}`, { ...values, ...details });
  }
  const alike = select((j) => ["label", "task", "seed", "change"].every((name) => field(name, j) === field(name, i)));
  if (alike.length > 1) {
    parts.push(heading("Learning rates and weight decays tried"), runTable(alike, "Runs that differ in these alone"));
  }
  parts.push(...explanation(label));
  for (const name of ["setting", "model", "mixer", "training"]) {
    add(name[0].toUpperCase() + name.slice(1), field(name, i));
  }
  const job = Object.fromEntries(["seed", "fidelity", "budget", "family"].map((name) => [name, field(name, i)]));
  add("Job", job);
  add("Where it ran", fields("details", i));
  return [`${nameOf(label)}, ${titleOf(task)}, seed ${seed}`, parts];
}

function quoted(word) {
  return /^[\w@%+=:,./-]+$/.test(word) ? word : "'" + word.replaceAll("'", "'\"'\"'") + "'";
}

function command(i) {
  const again = ["missing", "failed"].includes(field("status", i)) ? [] : ["--force"];
  const [verb, ...options] = field("words", i);
  const words = ["madbench", verb, field("label", i), ...options, "--seeds", String(field("seed", i)), ...again];
  return words.map(quoted).join(" ");
}

/** A small plot of one curve; its title and description say what it shows. */
function plot(steps, values, name) {
  const [width, height, left, bottom, top] = [320, 170, 48, 24, 22];
  const points = steps.map((step, i) => [step, values[i]]).filter(([, value]) => value !== null);
  const title = name.replaceAll("_", " ");
  if (!points.length) {
    return make("p", {}, `${title}: no finite value`);
  }
  const xs = points.map(([x]) => x);
  const ys = points.map(([, y]) => y);
  const [lowest, highest] = [Math.min(...ys), Math.max(...ys)];
  const [low, high] = name.endsWith("accuracy") ? [0, 1] : [lowest, highest];
  const x = (step) => left + ((width - left - 8) * step) / (Math.max(...xs) || 1);
  const y = (value) => height - bottom - ((height - bottom - top) * (value - low)) / (high - low || 1);
  const short = (value) => Number(value.toPrecision(3)).toString().replaceAll("-", "\u2212");
  const last = points[points.length - 1];
  const description = `${title} from ${short(ys[0])} at step ${xs[0]} to ${short(last[1])} at step ${last[0]}; lowest ${short(lowest)}, highest ${short(highest)}`;
  const line = points.map(([step, value]) => `${x(step).toFixed(1)},${y(value).toFixed(1)}`).join(" ");
  return svg(
    "svg",
    { viewBox: `0 0 ${width} ${height}`, role: "img", "aria-label": description },
    svg("text", { x: 0, y: 12 }, title),
    svg("path", { class: "axis", d: `M${left} ${top}V${height - bottom}H${width - 8}`, fill: "none" }),
    svg("text", { x: left - 4, y: top + 8, "text-anchor": "end" }, short(high)),
    svg("text", { x: left - 4, y: height - bottom, "text-anchor": "end" }, short(low)),
    svg("text", { x: left, y: height - 8 }, "step 0"),
    svg("text", { x: width - 8, y: height - 8, "text-anchor": "end" }, last[0].toLocaleString("en")),
    svg("polyline", { class: "line", points: line }),
  );
}

// Opening and closing by the hash, so that a run can be linked to

function contentOf(hash) {
  const [kind, ...rest] = hash.slice(1).split("/");
  let names;
  try {
    names = rest.map(decodeURIComponent);
  } catch {
    return null; // no hash of ours
  }
  if (kind.startsWith("run-")) {
    readData();
    return showRun(kind.slice(4));
  }
  const show = new Map([["runs", showRuns], ["effect", showEffect]]).get(kind);
  if (!show || names.length !== 2) {
    return null;
  }
  readData();
  return show(...names);
}

function route() {
  const content = contentOf(location.hash);
  if (content === null) {
    if (view.open) {
      view.close();
    }
    return;
  }
  viewTitle.textContent = content[0];
  viewBody.replaceChildren(...content[1]);
  if (!view.open) {
    opener = document.activeElement;
    view.showModal();
  }
  view.scrollTop = 0;
  viewTitle.focus();
}

document.getElementById("view-close").addEventListener("click", () => view.close());
view.addEventListener("click", (event) => {
  if (event.target === view) {
    const box = view.getBoundingClientRect();
    const isInside = event.clientX >= box.left && event.clientX <= box.right && event.clientY >= box.top && event.clientY <= box.bottom;
    if (!isInside) {
      view.close();
    }
  }
});
view.addEventListener("close", () => {
  if (/^#(run-|runs\/|effect\/)/.test(location.hash)) {
    history.replaceState(null, "", location.pathname + location.search);
  }
  viewBody.replaceChildren();
  const target = opener && opener !== document.body && opener.isConnected ? opener : document.getElementById("main");
  opener = null;
  target.focus({ preventScroll: target.id === "main" });
});
window.addEventListener("hashchange", route);
window.addEventListener("beforeprint", () => document.querySelectorAll("main details").forEach((one) => (one.open = true)));
if (location.hash) {
  route();
}
