// Where each machine's square is: sites beside each other, racks within a site, machines within a rack in their natural
// order.
import { natural } from '../format'
import type { Row } from '../fleet.svelte'

export interface Square {
  id: string
  x: number
  y: number
}

export interface Label {
  text: string
  x: number
  y: number
  width: number
  strong: boolean
}

export interface Layout {
  squares: Square[]
  labels: Label[]
  size: number
  height: number
}

export type Grouping = 'rack' | 'group' | 'provider' | 'state'

const gapRack = 10
const gapSite = 26
const labelHeight = 17

// groups orders machines into sites and, within them, into what they are grouped by.
export function groups(rows: Iterable<Row>, by: Grouping): [string, [string, Row[]][]][] {
  const sites = new Map<string, Map<string, Row[]>>()
  for (const r of rows) {
    let site = sites.get(r.site)
    if (!site) sites.set(r.site, (site = new Map()))
    const list = site.get(r[by])
    if (list) list.push(r)
    else site.set(r[by], [r])
  }
  const ordered = <T>(m: Map<string, T>): [string, T][] => [...m].sort(([a], [b]) => natural(a, b))
  return ordered(sites).map(([site, racks]) => [
    site,
    ordered(racks).map(([rack, rows]) => [rack, rows.sort((a, b) => natural(a.id, b.id))]),
  ])
}

// layout finds the largest squares with which everything fits into the height that is wished for.
export function layout(grouped: ReturnType<typeof groups>, width: number, wished: number): Layout {
  for (let size = 24; size > 3; size--) {
    if (place(grouped, width, size, false).height <= wished) return place(grouped, width, size, true)
  }
  return place(grouped, width, 3, true)
}

// place without squares only measures.
function place(grouped: ReturnType<typeof groups>, width: number, size: number, whole: boolean): Layout {
  const pitch = size + (size > 6 ? 2 : 1)
  const squares: Square[] = []
  const labels: Label[] = []
  let y = 0
  for (const [site, racks] of grouped) {
    labels.push({ text: site || 'no site', x: 0, y: y + 12, width, strong: true })
    y += labelHeight
    let x = 0
    let tall = 0
    for (const [rack, rows] of racks) {
      // A rack is a column of machines, as it stands there, and as wide as it needs to be.
      const columns = Math.max(Math.ceil(rows.length / 42), Math.min(rows.length, Math.ceil(Math.sqrt(rows.length * 1.6))))
      const fits = Math.max(1, Math.floor(width / pitch))
      const wide = Math.min(columns, fits)
      const w = Math.max(wide * pitch, size > 8 ? Math.min(width, 7 * rack.length + 4) : 0)
      if (x > 0 && x + w > width) {
        x = 0
        y += tall + gapRack
        tall = 0
      }
      const top = size > 8 ? labelHeight - 2 : 0
      if (top) labels.push({ text: rack || 'no rack', x, y: y + 11, width: w, strong: false })
      if (whole) rows.forEach((row, i) => squares.push({ id: row.id, x: x + (i % wide) * pitch, y: y + top + Math.floor(i / wide) * pitch }))
      tall = Math.max(tall, top + Math.ceil(rows.length / wide) * pitch)
      x += w + gapRack
    }
    y += tall + gapSite
  }
  return { squares, labels, size, height: Math.max(0, y - gapSite) }
}
