// Shows sooner what a reload would show: parts of the page that change are fetched again, as the page itself, when the console says so.
(() => {
  "use strict";
  const again = async (url) => {
    const answer = await fetch(url, { credentials: "same-origin", headers: { accept: "text/html" } });
    // Whoever may not look any more is told so.
    if (answer.status === 401 || answer.status === 403) { location.reload(); return; }
    if (!(answer.headers.get("content-type") || "").startsWith("text/html")) return;
    const fresh = new DOMParser().parseFromString(await answer.text(), "text/html");
    for (const part of document.querySelectorAll("[data-part]")) {
      const other = fresh.getElementById(part.id);
      if (!other || other.innerHTML === part.innerHTML) continue;
      // Whoever is on a button or link there stays on the one in its place.
      const stops = (of) => Array.from(of.querySelectorAll("a[href], button, input, [tabindex]"));
      const at = stops(part).indexOf(document.activeElement);
      part.replaceChildren(...other.childNodes);
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

  const said = document.querySelector(".live");
  if (document.querySelector("main[data-live]") && said) {
    const look = settled(() => again(location.href), 250);
    const tell = (on) => {
      said.hidden = false;
      said.classList.toggle("off", !on);
      const text = on ? said.dataset.on : said.dataset.off;
      if (said.textContent !== text) said.textContent = text;
    };
    let source = null;
    const listen = () => {
      source = new EventSource("/api/v1/changes");
      source.addEventListener("begin", () => { tell(true); look(); });
      source.addEventListener("change", look);
      source.onerror = () => {
        tell(false);
        if (source.readyState === EventSource.CLOSED) { look(); setTimeout(listen, 3000); }
      };
    };
    listen();
    addEventListener("pagehide", () => source.close());
    addEventListener("pageshow", (event) => { if (event.persisted) listen(); });
  }

  // What a request comes to, while it is typed.
  const form = document.querySelector("form[data-preview]");
  if (form) {
    const show = settled(() => {
      const asked = new URLSearchParams(new FormData(form));
      asked.delete("csrf");
      asked.set("do", "show");
      return again("/start?" + asked);
    }, 400);
    form.addEventListener("input", show);
  }
})();
