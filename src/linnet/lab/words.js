// What a room says: a sentence, numbers with their names, and whether it is still computing.
// model.drawn is the move that has been drawn; it is marked once the browser has painted it.

export function render({ model, el }) {
  const place = document.createElement("div");
  place.className = "words";
  const sentence = document.createElement("p");
  sentence.setAttribute("role", "status");
  const numbers = document.createElement("dl");
  place.append(sentence, numbers);
  const say = () => {
    sentence.textContent = model.sentence;
    sentence.classList.toggle("trouble", model.trouble);
  };
  const tell = () =>
    numbers.replaceChildren(
      ...Object.entries(model.numbers).map(([name, value]) => {
        const pair = document.createElement("div");
        const [term, told] = [document.createElement("dt"), document.createElement("dd")];
        term.textContent = name;
        told.textContent = value;
        pair.append(term, told);
        return pair;
      }),
    );
  const busy = () => {
    place.classList.toggle("busy", model.busy);
    place.setAttribute("aria-busy", String(model.busy));
  };
  model.on("sentence", say);
  model.on("trouble", say);
  model.on("numbers", tell);
  model.on("busy", busy);
  // a frame and a task later the browser has painted; a page that nobody sees is not painted at all
  const painted = (name) => {
    const number = model[name];
    let marked = false;
    const mark = () => {
      if (marked) return;
      marked = true;
      performance.mark(`${name} ${number}`);
      document.documentElement.dataset[name] = number;
    };
    requestAnimationFrame(() => setTimeout(mark));
    setTimeout(mark, 1000);
  };
  for (const name of ["drawn", "whole"]) {
    model.on(name, () => painted(name));
    painted(name);
  }
  say();
  tell();
  busy();
  return place;
}
