
// Copying.

document.addEventListener("click", (event) => {
  const button = event.target.closest?.("button[data-copy]");
  if (button) copyFrom(button, button.dataset.place ?? button.parentElement.querySelector("pre").textContent);
});
// On a narrow window each row is a card, whose values say what they are.
for (const { tHead, tBodies } of document.querySelectorAll(".figures")) {
  const titles = [...tHead.rows[0].cells].map((cell) => cell.textContent);
  for (const { cells } of tBodies[0].rows) [...cells].forEach((cell, index) => { cell.dataset.label = titles[index]; });
}
for (const element of document.querySelectorAll("[data-copy], .share-it")) element.hidden = false;
