"use strict";

document.documentElement.classList.add("script");

const view = document.getElementById("view");
const viewTitle = document.getElementById("view-title");
const viewBody = document.getElementById("view-body");
let opener = null;

/** An element with attributes and children; text is never read as HTML. */
function make(tag, attributes = {}, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    element.setAttribute(name, value);
  }
  element.append(...children.filter((child) => child !== null && child !== undefined));
  return element;
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
const labelled = [...document.querySelectorAll("tbody[data-label]")];
if (labelled.length) {
  document.getElementById("filter").hidden = false;
  filter.addEventListener("input", () => {
    const words = filter.value.split(/[\s,]+/).filter(Boolean);
    const labels = new Set();
    const shown = new Set();
    for (const body of labelled) {
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
    data.runs.chosen = data.chosen;
    for (const column of Object.values(data.runs)) {
      if ("lengths" in column) {
        column.index = column.lengths.flatMap(([index, length]) => Array(length).fill(index));
      }
    }
    for (const names of [data.titles, data.effects, data.explanations]) {
      Object.setPrototypeOf(names, null); // a label may be called like a property of objects
    }
    const ids = Array.from({ length: data.count }, (_, i) => field("id", i));
    data.byId = new Map(ids.map((id, i) => [id, i]));
  }
}

/** A field of the i-th run, null where it has none. */
function field(name, i) {
  const column = data.runs[name];
  if (column === undefined) {
    return null;
  }
  if ("all" in column) {
    return column.all;
  }
  return "each" in column ? column.each[i] : column.values[column.index[i]];
}

/** Fields whose names begin with ``prefix.``, as an object without what the run does not have. */
function fields(prefix, i) {
  const found = {};
  for (const name of Object.keys(data.runs)) {
    const value = name.startsWith(prefix + ".") ? field(name, i) : null;
    if (value !== null) {
      found[name.slice(prefix.length + 1)] = value;
    }
  }
  return found;
}

function select(test) {
  return Array.from({ length: data.count }, (_, i) => i).filter(test);
}

const taskTitle = (task) => data.titles[task] || task;
const runHash = (i) => "#run-" + field("id", i);
const isLanguage = (i) => field("task", i) === "language_model";

function percent(value) {
  return typeof value === "number" ? (100 * value).toFixed(1) + "%" : value === null ? "" : String(value);
}

function result(i) {
  if (isLanguage(i)) {
    const loss = field("metrics.loss_l5", i);
    return typeof loss === "number" ? loss.toFixed(3) : loss;
  }
  return percent(field("metrics.accuracy", i));
}

function table(headings, rows, caption) {
  const head = make("thead", {}, make("tr", {}, ...headings.map((text) => make("th", { scope: "col" }, text))));
  const region = { class: "scroll", role: "region", "aria-label": caption, tabindex: "0" };
  return make("div", region, make("table", {}, make("caption", { class: "unseen" }, caption), head, make("tbody", {}, ...rows)));
}

function shown(value) {
  if (Array.isArray(value)) {
    return value.map(shown).join(", ");
  }
  if (value !== null && typeof value === "object") {
    return Object.entries(value).map(([name, inner]) => `${name} ${shown(inner)}`).join(", ");
  }
  return String(value);
}

function facts(pairs) {
  const entries = Array.isArray(pairs) ? pairs : Object.entries(pairs);
  const rows = entries.map(([name, value]) =>
    make("div", {}, make("dt", {}, name.replaceAll("_", " ")), make("dd", {}, value instanceof Node ? value : shown(value))),
  );
  return make("dl", { class: "facts" }, ...rows);
}

function settingText(i) {
  return isLanguage(i) ? "" : data.settings[data.settingOf[i]];
}

function runRows(indices, withTask) {
  return indices.map((i) => {
    const training = field("training", i);
    const cells = [
      withTask ? taskTitle(field("task", i)) : null,
      settingText(i),
      String(field("seed", i)),
      String(training.learning_rate),
      String(training.weight_decay),
      field("status", i),
      result(i),
      field("chosen", i) ? "yes" : "",
    ].filter((text) => text !== null);
    const link = make("a", { href: runHash(i) }, field("id", i));
    const row = make("tr", field("chosen", i) ? { class: "chosen" } : {}, make("th", { scope: "row", class: "mono" }, link));
    row.append(...cells.map((text) => make("td", {}, text ?? "")));
    return row;
  });
}

const runHeadings = (withTask) => [
  "Run",
  ...(withTask ? ["Task"] : []),
  "Setting",
  "Seed",
  "Learning rate",
  "Weight decay",
  "Status",
  "Result",
  "Counts",
];

function explanation(label) {
  const letters = data.explanations[label] || [];
  if (!letters.length) {
    return make("p", {}, "A label of another family: its letters are that family's.");
  }
  const rows = letters.map(([letter, name, what, equation, source]) =>
    make(
      "div",
      {},
      make("dt", {}, make("b", { class: "mono" }, letter || "\u2014"), " " + name),
      make("dd", {}, what, make("code", {}, equation), make("span", { class: "source" }, source)),
    ),
  );
  return make("dl", { class: "letters" }, ...rows);
}

function heading(text) {
  return make("h3", {}, text);
}

// What the view shows

function showRuns(label, column) {
  const all = column === "" || column === "mad_average";
  const indices = select(
    (i) => field("label", i) === label && (all ? column === "" || !isLanguage(i) : field("task", i) === column),
  );
  if (!indices.length) {
    return [`${label}: ${taskTitle(column)}`, [make("p", {}, "This report holds no such runs.")]];
  }
  const done = indices.filter((i) => ["finished", "diverged"].includes(field("status", i))).length;
  const cell = document.querySelector(`td[data-link="${CSS.escape(`runs/${encodeURIComponent(label)}/${encodeURIComponent(column)}`)}"]`);
  const rule = column === "language_model" ? "" : " Of each setting and seed the run counts whose learning rate and weight decay were chosen.";
  const parts = [
    column !== "" && cell ? make("p", { class: "result" }, cell.textContent) : null,
    make("p", {}, `${done} of ${indices.length} jobs have a result.${rule}`),
    heading("Runs"),
    table(runHeadings(all), runRows(indices, all), "Runs behind the number"),
    heading("The label, letter by letter"),
    explanation(label),
  ].filter((part) => part !== null);
  return [`${label}: ${column === "" ? "all runs" : taskTitle(column)}`, parts];
}

function showEffect(name, quantity) {
  const effect = data.effects[`${name}/${quantity}`];
  if (!effect) {
    return null;
  }
  const column = quantity === "loss_l5" ? "language_model" : quantity;
  const link = (label) => make("a", { href: `#runs/${encodeURIComponent(label)}/${encodeURIComponent(column)}` }, label);
  const rows = effect.rows.map(([labels, text]) =>
    make("tr", {}, ...labels.map((label) => make("td", { class: "mono" }, link(label))), make("td", {}, text)),
  );
  const parts = [make("p", {}, effect.text), table(effect.headings, rows, "Labels behind the effect")];
  return [`${name}: ${taskTitle(quantity)}`, parts];
}

function showRun(id) {
  const i = data.byId.get(id);
  if (i === undefined) {
    return [`Run ${id}`, [make("p", {}, "This report holds no run of this id.")]];
  }
  const label = field("label", i);
  const task = field("task", i);
  const back = `#runs/${encodeURIComponent(label)}/${encodeURIComponent(task)}`;
  const status = field("status", i);
  const parts = [
    make("p", {}, make("a", { href: back }, `All runs of ${label} on ${taskTitle(task)}`)),
    facts([
      ["Status", status + (field("chosen", i) ? ", counts in the table" : "")],
      ["Result", result(i) || "none"],
      ...(isLanguage(i) ? [] : [["Setting", settingText(i)]]),
      ["Folder", status === "missing" ? "none yet" : make("code", {}, `${data.folder}/${id}`)],
    ]),
  ];
  const error = field("error", i);
  if (error) {
    parts.push(make("p", { class: "error" }, error));
  }
  parts.push(heading("Make it again"), make("code", { class: "command" }, command(i)));
  const curve = data.curves[i];
  if (curve) {
    const names = Object.keys(curve).filter((name) => name !== "step");
    parts.push(heading("Curve"), make("div", { class: "curves" }, ...names.map((name) => plot(curve.step, curve[name], name))));
  }
  const metrics = fields("metrics", i);
  if (Object.keys(metrics).length) {
    parts.push(heading("Metrics"), facts(metrics));
  }
  const tried = select(
    (j) => field("label", j) === label && field("task", j) === task && field("seed", j) === field("seed", i) && settingText(j) === settingText(i),
  );
  if (tried.length > 1) {
    parts.push(heading("Learning rates and weight decays tried"), table(runHeadings(false), runRows(tried, false), "Runs that differ in these alone"));
  }
  parts.push(heading("The label, letter by letter"), explanation(label));
  for (const name of ["setting", "model", "training"]) {
    const values = field(name, i);
    if (values) {
      parts.push(heading({ setting: "Task setting", model: "Model", training: "Training" }[name]), facts(values));
    }
  }
  const job = { seed: field("seed", i), fidelity: field("fidelity", i), budget_counting: field("counting", i), corpus: field("corpus", i) };
  const given = Object.fromEntries(Object.entries(job).filter(([, value]) => value !== null));
  parts.push(heading("Where it ran"), facts({ ...given, ...fields("details", i) }));
  return [`${label}, ${taskTitle(task)}, seed ${field("seed", i)}`, parts];
}

function quoted(word) {
  return /^[\w@%+=:,./-]+$/.test(word) ? word : "'" + word.replaceAll("'", "'\"'\"'") + "'";
}

function command(i) {
  const verb = isLanguage(i) ? ["madbench", "lm"] : ["madbench", "run"];
  const again = field("status", i) === "missing" || field("status", i) === "failed" ? [] : ["--force"];
  const words = [...verb, field("label", i), ...(field("words", i) || []), "--seeds", String(field("seed", i)), ...again];
  return words.map(quoted).join(" ");
}

function svg(tag, attributes, ...children) {
  const element = document.createElementNS("http://www.w3.org/2000/svg", tag);
  for (const [name, value] of Object.entries(attributes)) {
    element.setAttribute(name, value);
  }
  element.append(...children);
  return element;
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
  const text = (value) => Number(value.toPrecision(3)).toString();
  const last = points[points.length - 1];
  const description = `${title} from ${text(ys[0])} at step ${xs[0]} to ${text(last[1])} at step ${last[0]}; lowest ${text(lowest)}, highest ${text(highest)}`;
  const line = points.map(([step, value]) => `${x(step).toFixed(1)},${y(value).toFixed(1)}`).join(" ");
  return svg(
    "svg",
    { viewBox: `0 0 ${width} ${height}`, role: "img", "aria-label": description },
    svg("text", { x: 0, y: 12 }, title),
    svg("path", { class: "axis", d: `M${left} ${top}V${height - bottom}H${width - 8}`, fill: "none" }),
    svg("text", { x: left - 4, y: top + 8, "text-anchor": "end" }, text(high)),
    svg("text", { x: left - 4, y: height - bottom, "text-anchor": "end" }, text(low)),
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
