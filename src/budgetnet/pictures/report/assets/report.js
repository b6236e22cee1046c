"use strict";
(() => {
  const page = document.getElementById("page");
  const tip = document.getElementById("tip");
  const dark = matchMedia("(prefers-color-scheme: dark)");
  let data = JSON.parse(document.getElementById("data").textContent);
  const configs = data.configs;
  const drawn = new Map();

  // Charts

  async function embed(id) {
    const place = document.getElementById(id);
    const spec = data.charts[id];
    if (!place || !spec) return;
    const text = JSON.stringify(spec) + dark.matches;
    const old = drawn.get(id);
    if (old && old.place === place && old.text === text) return;
    drawn.set(id, { place, text });
    const result = await vegaEmbed(place, spec, {
      config: configs[dark.matches ? "dark" : "light"],
      actions: false, renderer: "svg", ast: true, tooltip: { theme: "custom" },
    });
    if (old && old.result) old.result.finalize();
    drawn.set(id, { place, text, result });
    place.dataset.drawn = "true";
  }

  const embedAll = () => Promise.all(Object.keys(data.charts).map(embed));

  // The picture of a run at a position of its slider

  const slides = new Map();

  function liveEdges(edges, kept, nodes) {
    const reached = new Set([0]), reaching = new Set([nodes - 1]);
    const order = [...edges].sort((a, b) => a.source - b.source);
    for (const edge of order) if (kept[edge.index] && reached.has(edge.source)) reached.add(edge.target);
    order.sort((a, b) => b.target - a.target);
    for (const edge of order) if (kept[edge.index] && reaching.has(edge.target)) reaching.add(edge.source);
    return kept.map((on, i) => on && reached.has(edges[i].source) && reaching.has(edges[i].target));
  }

  function paint(slide, position) {
    const { shots, found, nodes } = slide.frames;
    const shot = shots[Math.min(position, shots.length - 1)];
    const final = position >= shots.length;
    const kept = final ? found.map(Boolean) : shot.p.map((p) => p > 500);
    const live = liveEdges(slide.edges, kept, nodes);
    const alive = new Set();
    for (const edge of slide.edges) {
      const on = live[edge.index], p = shot.p[edge.index] / 1000;
      edge.element.classList.toggle("dropped", !on);
      edge.element.classList.toggle("alone", on && edge.block !== null && !live[edge.block]);
      edge.element.setAttribute("opacity", (0.3 + 0.7 * p).toFixed(2));
      edge.element.dataset.probability = p;
      edge.element.dataset.state = on ? "kept" : kept[edge.index] ? "kept, but on no path" : "dropped";
      if (on) alive.add(edge.source).add(edge.target);
    }
    for (const node of slide.canvas.querySelectorAll("[data-node]"))
      node.classList.toggle("dead", !alive.has(Number(node.dataset.node)));
    const edges = live.filter(Boolean).length;
    slide.output.textContent = final
      ? `found architecture · ${edges} edges`
      : `epoch ${shot.epoch} · ${edges} edges` + (shot.entropy === null ? "" : ` · ${shot.entropy.toFixed(2)} bits per edge`);
    slide.input.setAttribute("aria-valuetext", slide.output.textContent);
    slide.position = position;
  }

  function readEdges(canvas) {
    return [...canvas.querySelectorAll(".edge")].map((element) => ({
      element,
      index: Number(element.dataset.index),
      source: Number(element.dataset.source),
      target: Number(element.dataset.target),
      block: element.dataset.block === undefined ? null : Number(element.dataset.block),
    })).sort((a, b) => a.index - b.index);
  }

  function startSlider(box) {
    const id = box.dataset.slider, frames = data.sliders[id], before = slides.get(id);
    const slide = {
      frames, canvas: document.getElementById(`${id}-canvas`), input: document.getElementById(`${id}-slider`),
      output: document.getElementById(`${id}-epoch`), button: document.getElementById(`${id}-play`),
    };
    slide.edges = readEdges(slide.canvas);
    const last = frames.shots.length - (frames.found ? 0 : 1);
    const following = !before || before.position >= before.last;
    slide.last = last;
    slide.input.max = last;
    slide.input.value = following ? last : before.position;
    slide.input.addEventListener("input", () => { stop(slide); paint(slide, Number(slide.input.value)); });
    slide.button.addEventListener("click", () => (slide.timer ? stop(slide) : play(slide)));
    if (before) stop(before);
    slides.set(id, slide);
    box.hidden = false;
    paint(slide, Number(slide.input.value));
  }

  function play(slide) {
    let position = Number(slide.input.value) >= slide.last ? 0 : Number(slide.input.value);
    slide.button.textContent = "Pause";
    const step = () => {
      slide.input.value = position;
      paint(slide, position);
      if (position++ >= slide.last) stop(slide);
    };
    slide.timer = setInterval(step, Math.max(40, Math.min(400, 8000 / (slide.last + 1))));
    step();
  }

  function stop(slide) {
    clearInterval(slide.timer);
    slide.timer = 0;
    slide.button.textContent = "Play";
  }

  // What an edge is: on hover, or with the arrow keys

  function show(edge, x, y) {
    const { name, cost, probability, state } = edge.dataset;
    const lines = [name, state || (edge.classList.contains("dropped") ? "dropped" : "kept")];
    if (cost !== undefined) lines.push(`cost ${cost}`);
    if (probability !== undefined) lines.push(`probability ${Number(probability).toFixed(2)}`);
    if (edge.dataset.tick !== undefined) lines.push(`tick ${edge.dataset.tick}`);
    tip.textContent = lines.join("\n");
    tip.hidden = false;
    const box = tip.getBoundingClientRect();
    tip.style.left = `${Math.max(8, Math.min(x + 14, innerWidth - box.width - 8))}px`;
    tip.style.top = `${y + 18 + box.height > innerHeight ? Math.max(8, y - box.height - 12) : y + 18}px`;
  }

  function activate(edge) {
    for (const other of document.querySelectorAll(".edge.active")) other.classList.remove("active");
    if (edge) edge.classList.add("active"); else tip.hidden = true;
  }

  function startCanvas(canvas) {
    for (const title of canvas.querySelectorAll(".edge > title")) title.remove();  // the tip says it better
    canvas.addEventListener("pointermove", (event) => {
      const edge = event.target.closest(".edge");
      activate(edge);
      if (edge) show(edge, event.clientX, event.clientY);
    });
    canvas.addEventListener("pointerleave", () => activate(null));
    canvas.addEventListener("blur", () => activate(null));
    canvas.addEventListener("keydown", (event) => {
      const step = { ArrowRight: 1, ArrowDown: 1, ArrowLeft: -1, ArrowUp: -1 }[event.key];
      if (event.key === "Escape") return activate(null);
      if (!step) return undefined;
      event.preventDefault();
      const edges = readEdges(canvas).map((edge) => edge.element);
      const here = edges.findIndex((edge) => edge.classList.contains("active"));
      const next = here < 0 ? edges[step > 0 ? 0 : edges.length - 1] : edges[(here + step + edges.length) % edges.length];
      activate(next);
      next.scrollIntoView({ block: "nearest", inline: "nearest" });
      const box = next.querySelector(".line").getBoundingClientRect();
      return show(next, box.x + box.width / 2, box.y + box.height / 2);
    });
  }

  function start(root) {
    root.querySelectorAll(".canvas").forEach(startCanvas);
    root.querySelectorAll("[data-slider]").forEach(startSlider);
  }

  // A run that goes on: take over what has changed, and nothing else

  const texts = new Map();
  let stamp = "";

  function remember(root) {
    for (const part of root.querySelectorAll("[data-part]")) texts.set(part.dataset.part, part.innerHTML);
  }

  function takeOver(update) {
    const fresh = document.createElement("template");
    fresh.innerHTML = update.body;
    data = { ...data, ...update.data };
    document.title = update.title;
    const focus = document.activeElement && document.activeElement.id;
    const names = (root) => [...root.querySelectorAll("[data-part]")].map((part) => part.dataset.part).join();
    if (names(fresh.content) !== names(page)) {
      remember(fresh.content);
      page.replaceChildren(fresh.content);
      start(page);
    } else {
      for (const part of fresh.content.querySelectorAll("[data-part]")) {
        const name = part.dataset.part, now = page.querySelector(`[data-part="${CSS.escape(name)}"]`);
        if (texts.get(name) === part.innerHTML) continue;
        texts.set(name, part.innerHTML);
        const open = [...now.querySelectorAll("details")].map((details) => details.open);
        now.replaceWith(part);
        part.querySelectorAll("details").forEach((details, i) => { if (i < open.length) details.open = open[i]; });
        start(part);
      }
    }
    if (focus && document.getElementById(focus)) document.getElementById(focus).focus({ preventScroll: true });
    embedAll();
  }

  async function poll() {
    try {
      const answer = await fetch(`update?since=${encodeURIComponent(stamp)}`);
      if (answer.status === 200) {
        const update = await answer.json();
        stamp = update.stamp;
        takeOver(update);
      }
      document.documentElement.dataset.live = "on";
    } catch {
      document.documentElement.dataset.live = "off";
    }
    setTimeout(poll, data.poll * 1000);
  }

  remember(page);
  start(page);
  dark.addEventListener("change", embedAll);
  embedAll();
  if (data.poll) poll();
})();
