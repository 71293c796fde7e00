// cards has a phone show each row of a table as a card, in which every cell is named after its column. app.css has the
// layout. Browsers go on reading it out as a table.
export function cards(table: HTMLTableElement): { destroy: () => void } {
  const name = () => {
    const heads = [...(table.tHead?.rows[0]?.cells ?? [])].map((c) => c.textContent?.trim() ?? '')
    for (const row of table.rows) {
      let column = 0
      for (const cell of row.cells) {
        const head = cell.colSpan === 1 ? (heads[column] ?? '') : ''
        if (cell.dataset.head !== head) cell.dataset.head = head
        column += cell.colSpan
      }
    }
  }
  table.classList.add('cards')
  name()
  const seen = new MutationObserver(name)
  seen.observe(table, { childList: true, subtree: true, characterData: true })
  return { destroy: () => seen.disconnect() }
}
