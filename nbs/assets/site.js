// What scrolls sideways can be reached with the keyboard.
const BOXES = 'pre, .sd-table, .cell-output-display, .katex-display, .table-responsive';
function mark() {
  document.querySelectorAll(BOXES).forEach(e => {
    if (e.scrollWidth > e.clientWidth + 1) { if (!e.hasAttribute('tabindex')) { e.tabIndex = 0; e.dataset.scrolls = ''; } }
    else if (e.dataset.scrolls !== undefined) { e.removeAttribute('tabindex'); delete e.dataset.scrolls; }
  });
}
mark();
window.addEventListener('load', mark);
window.addEventListener('resize', mark);
