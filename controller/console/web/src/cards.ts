// cards has a phone show each row of a table as a card: every cell is named after its column, and the roles are written
// out, since what is no longer laid out as a table is no longer read out as one. app.css has the layout.
export function cards(table: HTMLTableElement): { destroy: () => void } {
  const name = () => {
    const heads = [...(table.tHead?.rows[0]?.cells ?? [])].map((c) => c.textContent?.trim() ?? '')
    for (const row of table.rows) {
      row.role = 'row'
      let column = 0
      for (const cell of row.cells) {
        const head = cell.colSpan === 1 ? (heads[column] ?? '') : ''
        if (cell.dataset.head !== head) cell.dataset.head = head
        if (cell.tagName === 'TD') cell.role ||= 'cell'
        else cell.role = row.parentElement === table.tHead ? 'columnheader' : 'rowheader'
        column += cell.colSpan
      }
    }
  }
  table.classList.add('cards')
  table.role = 'table'
  if (table.caption) table.caption.role = 'caption'
  if (table.tHead) table.tHead.role = 'rowgroup'
  for (const body of table.tBodies) body.role = 'rowgroup'
  name()
  const seen = new MutationObserver(name)
  seen.observe(table, { childList: true, subtree: true, characterData: true })
  return { destroy: () => seen.disconnect() }
}
