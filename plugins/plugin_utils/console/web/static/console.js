// Shows sooner what a reload would show: parts of the page that change are fetched again, as the page itself, when the console says so.
(() => {
  "use strict";
  // Times come in UTC and are shown in the reader's own zone, with UTC on hover.
  const localise = (root) => {
    for (const time of root.querySelectorAll("time[datetime]")) {
      const at = new Date(time.dateTime), two = (number) => String(number).padStart(2, "0");
      if (time.title || isNaN(at)) continue;
      time.title = time.textContent;
      time.textContent = `${at.getFullYear()}-${two(at.getMonth() + 1)}-${two(at.getDate())} ${two(at.getHours())}:${two(at.getMinutes())}:${two(at.getSeconds())}`;
    }
  };
  localise(document);
  const times = document.querySelector("[data-times]");
  if (times) times.textContent = times.dataset.times;

  const toEnd = (root, place) => {
    const output = root.querySelector("[data-end]");
    if (output) output.scrollTop = place ?? output.scrollHeight;
  };
  toEnd(document, null);

  const again = async (url) => {
    const answer = await fetch(url, { credentials: "same-origin", headers: { accept: "text/html" } });
    // Whoever may not look any more is told so.
    if (answer.status === 401 || answer.status === 403) { location.reload(); return; }
    if (!(answer.headers.get("content-type") || "").startsWith("text/html")) return;
    const fresh = new DOMParser().parseFromString(await answer.text(), "text/html");
    localise(fresh);
    for (const part of document.querySelectorAll("[data-part]")) {
      const other = fresh.getElementById(part.id);
      if (!other || other.innerHTML === part.innerHTML) continue;
      // Whoever is on a button or link there stays on the one in its place.
      const stops = (of) => Array.from(of.querySelectorAll("a[href], button, input, [tabindex]"));
      const at = stops(part).indexOf(document.activeElement);
      // Whoever has scrolled back in the output of a tool stays there; else its end is shown.
      const old = part.querySelector("[data-end]"), place = old && old.scrollTop + old.clientHeight + 4 < old.scrollHeight ? old.scrollTop : null;
      part.replaceChildren(...other.childNodes);
      toEnd(part, place);
      if (at >= 0) (stops(part)[at] || part).focus({ preventScroll: true });
    }
  };

  // One at a time, and the last wish wins.
  const settled = (work, pause) => {
    let timer = 0, busy = false, wanted = false;
    const begin = async () => {
      if (busy) { wanted = true; return; }
      busy = true;
      try { await work(); } catch { /* the next one may reach it */ }
      busy = false;
      if (wanted) { wanted = false; begin(); }
    };
    return () => { clearTimeout(timer); timer = setTimeout(begin, pause); };
  };

  // An address with `#` unfolds what it names; not every browser does that by itself.
  const unfold = () => {
    const part = document.querySelector(":target");
    const folded = part && part.closest("details:not([open])");
    if (folded) { folded.open = true; part.scrollIntoView(); }
  };
  addEventListener("load", unfold);
  addEventListener("hashchange", unfold);

  // Kept in this browser only: whose end is told of.
  const stored = (name) => { try { return JSON.parse(localStorage.getItem(name)) || {}; } catch { return {}; } };
  const store = (name, value) => { try { localStorage.setItem(name, JSON.stringify(value)); } catch { /* a private window */ } };
  const ended = (change) => {
    const watched = stored("notify");
    if (!watched[change.name] || !["Finished", "Cancelled", "Refused", "Failed"].includes(change.phase)) return;
    delete watched[change.name];
    store("notify", watched);
    const note = new Notification(change.name, { body: change.verdict || change.phase, tag: change.name });
    note.onclick = () => { focus(); location.href = "/runs/" + encodeURIComponent(change.name); };
  };
  const notify = document.querySelector("button[data-notify]");
  if (notify && "Notification" in window && isSecureContext) {
    const name = notify.dataset.notify;
    const show = () => { if (stored("notify")[name]) { notify.disabled = true; notify.textContent = notify.dataset.on; } };
    notify.parentElement.hidden = false;
    notify.addEventListener("click", async () => {
      if (await Notification.requestPermission() !== "granted") return;
      store("notify", { ...stored("notify"), [name]: true });
      show();
    });
    show();
  }

  // `/` goes to the jump box, `g` and a letter to a page.
  let before = "";
  addEventListener("keydown", (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey || event.target.closest("input, select, textarea, [contenteditable]")) return;
    if (event.key === "/") {
      const jump = document.querySelector("input[data-jump]");
      if (jump) { event.preventDefault(); jump.focus(); }
    } else if (before === "g") {
      for (const link of document.querySelectorAll("a[data-key]")) if (link.dataset.key === event.key) link.click();
    }
    before = event.key;
  });

  const said = document.querySelector(".live");
  const live = document.querySelector("main[data-live]");
  if (live && said) {
    const look = settled(() => again(live.dataset.from || location.href), 250);
    const tell = (on) => {
      said.hidden = false;
      said.classList.toggle("off", !on);
      const text = on ? said.dataset.on : said.dataset.off;
      if (said.textContent !== text) said.textContent = text;
    };
    // The output of a tool is fetched from its node while somebody looks, and no change of an action tells of it.
    setInterval(() => { if (!document.hidden && document.querySelector("[data-poll]")) look(); }, 3000);
    // A browser opens six connections to one host: of all pages one that is seen listens, and tells the others.
    const channel = new BroadcastChannel("changes");
    const heard = (kind) => {
      if (kind === "off") { tell(false); return; }
      if (kind === "on") tell(true);
      look();
    };
    channel.onmessage = (event) => heard(event.data);
    const both = (kind) => { channel.postMessage(kind); heard(kind); };
    let stop = null;
    // Listens until it is stopped, and resolves then.
    const listen = () => new Promise((resolve) => {
      let source = null, timer = 0;
      const open = () => {
        source = new EventSource("/api/v1/changes");
        source.addEventListener("begin", () => both("on"));
        source.addEventListener("change", (event) => { both("change"); ended(JSON.parse(event.data)); });
        source.onerror = () => {
          both("off");
          if (source.readyState === EventSource.CLOSED) { look(); timer = setTimeout(open, 3000); }
        };
      };
      stop = () => { clearTimeout(timer); source.close(); stop = null; resolve(); };
      open();
    });
    let waiting = null;
    const begin = () => {
      if (document.hidden || stop || waiting) return;
      look();
      // Locks are there on HTTPS and on this machine's own address; elsewhere each page that is seen listens for itself.
      if (!navigator.locks) { listen(); return; }
      waiting = new AbortController();
      const done = () => { waiting = null; };
      navigator.locks.request("changes", { signal: waiting.signal }, () => { done(); return document.hidden ? null : listen(); }).catch(done);
      tell(true);
    };
    const end = () => { if (waiting) waiting.abort(); if (stop) stop(); };
    begin();
    addEventListener("visibilitychange", () => (document.hidden ? end() : begin()));
    addEventListener("pagehide", end);
    addEventListener("pageshow", (event) => { if (event.persisted) begin(); });
  }

  // What a request comes to, while it is typed.
  const form = document.querySelector("form[data-preview]");
  if (form) {
    const show = settled(async () => {
      const asked = new URLSearchParams(new FormData(form));
      asked.delete("csrf");
      // The address has the whole form, so a reload or Back loses nothing. One that no server would take stays as it is.
      const address = "/start?" + asked;
      if (address.length < 16000) history.replaceState(null, "", address);
      asked.set("do", "show");
      await again("/start?" + asked);
      for (const field of form.querySelectorAll("[name][aria-describedby]")) {
        if (document.getElementById(field.getAttribute("aria-describedby")).childElementCount) field.setAttribute("aria-invalid", "true");
        else field.removeAttribute("aria-invalid");
      }
    }, 400);
    // A node that stands in the list is ticked and cannot be chosen twice.
    const boxes = form.querySelectorAll("input[name=found]"), list = form.elements.nodes;
    const mark = () => {
      const listed = new Set(list.value.split(/[\s,]+/));
      for (const box of boxes) {
        const is = listed.has(box.value);
        if (is || box.disabled) box.checked = is;
        box.disabled = is;
      }
    };
    list.addEventListener("input", mark);
    form.addEventListener("input", show);
    // Firefox keeps what was typed over a reload and says nothing of it.
    mark();
  }
})();
