// Where each machine's square is: sites below each other, racks within a site, machines within a rack in their order.
import type { Group } from '../fleet.svelte'

export interface Label {
  text: string
  x: number
  y: number
  width: number
  strong: boolean
}

// Block is the squares of one group, row by row.
export interface Block {
  from: number
  count: number
  x: number
  y: number
  wide: number
}

export interface Layout {
  blocks: Block[]
  labels: Label[]
  size: number
  pitch: number
  height: number
}

const gapSite = 28
const labelHeight = 19
// labelFonts are of sites and of their racks, in pixels; a letter of the smaller is about so wide.
export const labelFonts = { strong: 14, plain: 12 }
const letter = 7.4
// Sizes of a square, and from the left of one to the left of the next. The smallest touch each other.
const sizes: [number, number][] = [
  ...Array.from({ length: 21 }, (_, i): [number, number] => [24 - i, 24 - i + (24 - i > 6 ? 2 : 1)]), [3, 4], [2, 3], [2, 2],
]

// layout finds the largest squares with which everything fits into the height that is wished for.
export function layout(groups: Group[], width: number, wished: number): Layout {
  let l: Layout | undefined
  for (const [size, pitch] of sizes) {
    l = place(groups, width, size, pitch)
    if (l.height <= wished) break
  }
  return l ?? place([], width, 2, 2)
}

function place(groups: Group[], width: number, size: number, pitch: number): Layout {
  const blocks: Block[] = []
  const labels: Label[] = []
  const gap = Math.min(10, pitch + 1)
  const fits = Math.max(1, Math.floor(width / pitch))
  let y = 0
  let x = 0
  let tall = 0
  let site: string | undefined
  for (const g of groups) {
    if (g.site !== site) {
      if (site !== undefined) y += tall + gapSite
      site = g.site
      labels.push({ text: site || 'no site', x: 0, y: y + 13, width, strong: true })
      y += labelHeight
      x = tall = 0
    }
    // A rack is a column of machines, as it stands there, and as wide as it needs to be.
    const columns = Math.max(Math.ceil(g.count / 42), Math.min(g.count, Math.ceil(Math.sqrt(g.count * 1.6))))
    const wide = Math.min(columns, fits)
    const w = Math.max(wide * pitch, size > 8 ? Math.min(width, letter * (g.name || 'none').length + 4) : 0)
    if (x > 0 && x + w > width) {
      x = 0
      y += tall + gap
      tall = 0
    }
    const top = size > 8 ? labelHeight - 2 : 0
    if (top) labels.push({ text: g.name || 'none', x, y: y + 12, width: w, strong: false })
    blocks.push({ from: g.from, count: g.count, x, y: y + top, wide })
    tall = Math.max(tall, top + Math.ceil(g.count / wide) * pitch)
    x += w + gap
  }
  return { blocks, labels, size, pitch, height: y + tall }
}

// squareAt is the place of the machine whose square is there; -1 where none is.
export function squareAt(l: Layout, x: number, y: number): number {
  for (const b of l.blocks) {
    const column = Math.floor((x - b.x) / l.pitch)
    const row = Math.floor((y - b.y) / l.pitch)
    const i = row * b.wide + column
    if (column >= 0 && column < b.wide && row >= 0 && i < b.count) return b.from + i
  }
  return -1
}

// positionOf is where a machine's square is.
export function positionOf(l: Layout, place: number): { x: number; y: number } {
  let low = 0
  let high = l.blocks.length - 1
  while (low < high) {
    const middle = (low + high + 1) >> 1
    if ((l.blocks[middle]?.from ?? 0) <= place) low = middle
    else high = middle - 1
  }
  const b = l.blocks[low]
  if (!b) return { x: 0, y: 0 }
  const i = place - b.from
  return { x: b.x + (i % b.wide) * l.pitch, y: b.y + Math.floor(i / b.wide) * l.pitch }
}
