// Shows all rows of one node, which stand packed in the page (report/by_node.py says how). What a node sent becomes text and nothing else.
(() => {
  "use strict";
  const PREFIX = "#node=";
  const SIGNS = { FAIL: "✕", UNKNOWN: "?", WARN: "▲", KNOWN_FAIL: "■", SKIPPED: "–", PASS: "✓" };
  const { checks, shown: notJudged, nodes, starts, words } = JSON.parse(document.getElementById("nodes-index").textContent);
  const chunks = document.querySelectorAll("script.packed-nodes");
  const box = document.getElementById("open-node"), field = document.getElementById("node-name");
  const said = document.getElementById("node-said"), opened = document.getElementById("opened");
  const places = new Map(nodes.map(([name], place) => [name, place]));

  const made = (tag, text, style) => {
    const element = document.createElement(tag);
    if (text !== undefined) element.textContent = text;
    if (style) element.className = style;
    return element;
  };
  const badge = (word, isShown) => isShown ? made("span", "○ " + word + ", not judged", "b shown") : made("span", SIGNS[word] + " " + word, "b " + word);
  const stamp = () => made("span", "simulated", "sim");
  const at = (column, row) => Array.isArray(column) ? column[row] : column;
  const joined = (value, unit) => value && unit && unit !== "count" ? value + " " + unit : value;
  const metrics = (of, row) => of.filter(([, , values]) => at(values, row) !== "")
    .map(([name, units, values]) => name + " " + joined(at(values, row), at(units, row))).join(", ");
  const time = (seconds) => seconds === "" ? "" : seconds === "0" ? "< 0.1 s" : seconds + " s";

  // The chunk of the node that was opened last: whoever reads one node reads its neighbour next.
  let last = {};
  const unpacked = (number) => {
    if (last.number !== number) last = { number, content: unpack(chunks[number].textContent) };
    return last.content;
  };
  const unpack = async (text) => {
    const packed = Uint8Array.from(atob(text), (byte) => byte.charCodeAt(0));
    return JSON.parse(await new Response(new Blob([packed]).stream().pipeThrough(new DecompressionStream("deflate"))).text());
  };

  // [check, row] of each row of a node, as texts by the names of their columns.
  const rowsOf = ({ subjects, sets, checks: columns }, node) => columns.flatMap((of) => sets[of.set].flatMap((subject, row) => {
    const [owner, part] = subjects[subject];
    if (owner !== node) return [];
    const [stage, check, variant] = checks[of.check];
    const evidence = at(of.evidence, row), unreadable = at(of.unreadable, row);
    return [{
      stage, check: variant ? check + " " + variant : check, part, verdict: words[at(of.verdict, row)], value: joined(at(of.value, row), at(of.unit, row)),
      floor: at(of.floor, row), layer: at(of.layer, row), other: metrics(of.other, row), ungated: metrics(of.ungated, row),
      isShown: notJudged.includes(of.check) && words[at(of.verdict, row)] === "PASS" && at(of.value, row) !== "" && at(of.floor, row) === "",
      time: time(at(of.seconds, row)), simulated: at(of.simulated, row),
      reason: [at(of.reason, row), evidence, unreadable && "not read: " + unreadable].filter(Boolean).join("; "),
    }];
  }));

  const COLUMNS = [
    ["check", "check", "w"], ["part", "part", "w"], ["verdict", "verdict", ""], ["value", "value", "n"], ["floor", "floor or limit", "n"], ["layer", "set by", ""],
    ["other", "also measured", "s"], ["ungated", "shown, not gated on", "s"], ["time", "time", "n"], ["reason", "reason", "a"],
  ];
  const table = (rows) => {
    const columns = COLUMNS.filter(([key]) => rows.some((row) => row[key]));
    const head = made("tr"), body = made("tbody"), whole = made("table"), scroll = made("div", undefined, "scroll");
    for (const [, title, style] of columns) head.append(made("th", title, style === "n" ? "n" : ""));
    for (const row of rows) {
      const line = made("tr");
      for (const [key, , style] of columns) {
        const cell = made("td", key === "verdict" ? undefined : row[key], style);
        if (key === "verdict") cell.append(badge(row.verdict, row.isShown));
        if (key === "check" && row.simulated) cell.append(stamp());
        line.append(cell);
      }
      body.append(line);
    }
    const top = made("thead");
    top.append(head);
    whole.append(top, body);
    scroll.append(whole);
    Object.assign(scroll, { tabIndex: 0, role: "group", ariaLabel: "Table" });
    return scroll;
  };

  const close = (section) => {
    section.remove();
    if (location.hash.startsWith(PREFIX)) history.replaceState(null, "", "#one-node");
    field.focus();
  };
  const shown = (place, rows) => {
    const [name, word] = nodes[place];
    const section = made("section", undefined, "one-node"), title = made("h3", name + " "), end = made("button", "Close");
    section.dataset.node = place;
    title.tabIndex = -1;
    if (word >= 0) title.append(badge(words[word]));
    end.type = "button";
    end.ariaLabel = "Close " + name;
    end.addEventListener("click", () => close(section));
    title.append(end);
    section.append(title, made("p", rows.length + " rows of " + name, "sub"));
    for (const stage of new Set(rows.map((row) => row.stage))) section.append(made("h4", stage), table(rows.filter((row) => row.stage === stage)));
    return section;
  };

  const open = async (name) => {
    said.textContent = "";
    const place = places.get(name.trim());
    if (place === undefined) {
      said.textContent = name.trim() ? "No node of this page is called " + name.trim() + "." : "Which node? Type its name.";
      return;
    }
    let section = opened.querySelector(`[data-node="${place}"]`);
    if (!section) {
      const number = starts.findLastIndex((first) => first <= place);
      try {
        section = shown(place, rowsOf(await unpacked(number), place - starts[number]));
      } catch (error) {
        said.textContent = "The rows of this node cannot be unpacked (" + error.message + "): see verdicts.jsonl or verdicts.jsonl.gz.";
        return;
      }
      opened.prepend(section);
    }
    section.querySelector("h3").focus();
    section.scrollIntoView();
  };
  const named = () => {
    if (!location.hash.startsWith(PREFIX)) return;
    try {
      open(decodeURIComponent(location.hash.slice(PREFIX.length)));
    } catch { said.textContent = "The address of this page names no node."; }
  };

  if (typeof DecompressionStream === "undefined") {
    said.textContent = "This browser cannot unpack the rows of a node (it has no DecompressionStream, which browsers have since 2023): take a newer one, or look in verdicts.jsonl or verdicts.jsonl.gz.";
    return;
  }
  box.hidden = false;
  document.getElementById("node-open").addEventListener("click", () => open(field.value));
  field.addEventListener("keydown", (event) => { if (event.key === "Enter") open(field.value); });
  // Only for whoever types: thousands of names would take their time in every page.
  field.addEventListener("focus", () => {
    document.getElementById("node-names").append(...nodes.map(([name]) => Object.assign(made("option"), { value: name })));
  }, { once: true });
  addEventListener("hashchange", named);
  // A link to the node that the address already names changes no address.
  addEventListener("click", (event) => {
    const link = event.target.closest("a[href^='" + PREFIX + "']");
    if (link && link.hash === location.hash) named();
  });
  named();
})();
