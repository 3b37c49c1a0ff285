"""Does the page answer within a frame or two at 2,000 objects?"""

from __future__ import annotations

from browser import Open
from playwright.sync_api import expect

import cyclescope

FRAME_MS = 1000 / 60

# The time from the beginning of some work until the page has been laid out and styled again.
TIMED = """async (element, work) => {
  const act = new Function("element", work);
  const times = [];
  for (let i = 0; i < 9; i++) {
    await new Promise(requestAnimationFrame);
    const start = performance.now();
    act.call(null, element);
    document.body.getBoundingClientRect();
    times.push(performance.now() - start);
  }
  return times.sort((a, b) => a - b)[4];
}"""

ACTIONS = {
    "search": "const e = document.querySelector('input'); e.value = 'node ' + performance.now() % 9;"
    " e.dispatchEvent(new Event('input'))",
    "hover": "const all = element.querySelectorAll('.node');"
    " all[Math.floor(Math.random() * all.length)]"
    ".dispatchEvent(new PointerEvent('pointerover', {bubbles: true}))",
    "choose": "const all = element.querySelectorAll('.node');"
    " all[Math.floor(Math.random() * all.length)].dispatchEvent(new MouseEvent('click', {bubbles: true}))",
    "zoom": "document.querySelector('[data-zoom=in]').click()",
    "arrow": "element.dispatchEvent(new KeyboardEvent('keydown', {key: 'ArrowRight', bubbles: true}))",
}


def test_two_frames_at_two_thousand_objects(
    large: cyclescope.CycleReport, open_page: Open
) -> None:
    opened = open_page(large.to_html())
    opened.button("Everything").click()
    expect(opened.drawing.locator(".node[data-node]")).to_have_count(2000)
    opened.page.evaluate(
        "window.eval = undefined"
    )  # The policy forbids it to the page; the test's own code comes from outside.
    times = {}
    for name, action in ACTIONS.items():
        times[name] = opened.drawing.evaluate(
            TIMED.replace('const act = new Function("element", work);', f"const act = (element) => {{ {action} }};"),
            "",
        )
    assert max(times.values()) < 2 * FRAME_MS, times
