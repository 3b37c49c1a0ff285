
// The list of leaks: search, filters, order.

/** Maximum number of leaks to list where the list stands above the leak. */
const FEW = 5;
/** The same on a phone, where the first leak is to be on the first screen. */
const FEWEST = 2;
const NARROW = matchMedia("(max-width: 760px)");
/** From this width on, the list stands beside the leak. */
const BESIDE = matchMedia("(min-width: 1200px)");

class Contents {
  constructor(nav) {
    this.nav = nav;
    this.list = nav.querySelector("ol");
    this.items = [...this.list.children];
    this.input = nav.querySelector("input");
    this.choices = [...nav.querySelectorAll("[data-by]")];
    this.rank = this.choices.find(({ dataset }) => dataset.by === "rank");
    this.order = nav.querySelector("[data-order]");
    this.rest = nav.querySelector(".rest");
    this.all = false;
    this.none = make("p", "No leak matches.");
    this.none.className = "total";
    this.list.after(this.none);
    nav.querySelector(".filters").hidden = false;
    nav.classList.add("live");
    this.input.addEventListener("input", () => this.update());
    this.input.addEventListener("keydown", (event) => {
      if (event.key === "Enter") this.items.find((item) => this.fits(item))?.querySelector("a").click();
      if (event.key !== "Escape") return;
      this.input.value = "";
      this.update();
      this.list.querySelector("[aria-current]")?.focus({ preventScroll: true });
    });
    for (const select of this.choices) select.addEventListener("change", () => this.choose(select));
    this.order.addEventListener("change", () => this.sort());
    this.rest.addEventListener("click", () => {
      this.all = !this.all;
      this.update();
    });
    for (const width of [BESIDE, NARROW]) width.addEventListener("change", () => this.update());
    this.update();
  }

  /** True if a leak fits the search and the filters. */
  fits(item) {
    const letters = this.input.value.trim().toLowerCase();
    const words = `${item.textContent}\n${item.dataset.places}\n${item.querySelector("a").hash.slice(1)}`;
    return words.toLowerCase().includes(letters) && this.choices.every(({ value, dataset }) =>
      !value || item.dataset[dataset.by].split("\n").includes(value));
  }

  /** Lists what fits a choice; if the leak that is shown does not, the first one that does is shown. */
  choose(select) {
    if (select === this.rank) this.tellShares();
    this.sort();
    const fitting = this.items.filter((item) => this.fits(item));
    if (fitting.length && !fitting.some(isCurrent)) showInstead(fitting[0].querySelector("a").hash);
  }

  /** Has each leak tell its size, count and bar on the chosen rank, or on all. */
  tellShares() {
    const told = this.items.filter((item) => this.isOnRank(item)).map((item) => {
      const [size, times] = item.querySelectorAll("a > b, i");
      const { bytes, rank, shares } = item.dataset;
      item.whole ??= [bytes, size.textContent, times.textContent];
      const place = rank.split("\n").indexOf(this.rank.value);
      const share = this.rank.value ? shares.split("\n")[place].split("|") : item.whole;
      [size.textContent, times.textContent] = share.slice(1);
      return { item, bytes: Number(share[0]) };
    });
    const most = Math.max(1, ...told.map(({ bytes }) => bytes));
    for (const { item, bytes } of told) {
      item.bytes = bytes;
      item.querySelector(".share rect").setAttribute("width", Math.max((64 * bytes) / most, 1));
    }
  }

  isOnRank({ dataset }) {
    return !this.rank?.value || dataset.rank.split("\n").includes(this.rank.value);
  }

  /** Shows the leaks that fit; above the leak only the first few and the current one. */
  update() {
    const fitting = this.items.filter((item) => this.fits(item));
    const most = NARROW.matches ? FEWEST : FEW;
    const few = BESIDE.matches || this.all ? fitting : fitting.filter((item, index) => index < most || isCurrent(item));
    const shown = new Set(few);
    for (const item of this.items) item.hidden = !shown.has(item);
    this.none.hidden = fitting.length > 0;
    const more = fitting.length - shown.size;
    this.rest.hidden = BESIDE.matches || (!more && !this.all) || fitting.length <= most;
    this.rest.textContent = this.all ? "Fewer" : `${more} more`;
    this.nav.classList.toggle("whole", this.all);
    const all = fitting.length === this.items.length;
    this.nav.querySelector("output").textContent = all ? "" : ` · ${fitting.length} listed`;
    if (this.rank?.value) this.nav.querySelector("output").textContent = ` · ${fitting.length} on rank ${this.rank.value}`;
  }

  /** Puts the list in the chosen order. */
  sort() {
    const number = (item, kind) => Number((item.querySelector(kind)?.textContent ?? "").replace(/[^0-9]/g, "") || 1);
    const place = (item) => item.querySelector("small")?.textContent ?? "\uffff";
    const by = [
      (a, b) => (this.rank?.value ? b.bytes - a.bytes : 0),
      (a, b) => number(b, "i") - number(a, "i"),
      (a, b) => place(a).localeCompare(place(b), "en", { numeric: true }),
    ][this.order.value];
    const sorted = [...this.initial].sort(by);
    this.items = sorted;
    this.list.append(...sorted);
    this.update();
  }

  /** The list as it was written: most memory first. */
  get initial() {
    return this.written ??= [...this.items];
  }

  /** The address of the leak that comes so many places after a leak, among those that are listed. */
  beside(id, step) {
    const links = this.items.filter((item) => this.fits(item)).map((item) => item.querySelector("a").hash);
    return links[links.indexOf(`#${id}`) + step] ?? null;
  }
}

function isCurrent(item) {
  return item.firstElementChild.hasAttribute("aria-current");
}
