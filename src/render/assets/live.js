
// Copying.

document.addEventListener("click", (event) => {
  const button = event.target.closest?.("button[data-copy]");
  if (button) copyFrom(button, button.parentElement.querySelector("pre").textContent);
});
for (const button of document.querySelectorAll("[data-copy]")) button.hidden = false;
