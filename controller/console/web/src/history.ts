// A machine's history in lines that a person reads: all entries of one operation are one.
import type { TimelineEntry } from './types'

export interface Line {
  // entries are newest first.
  entries: TimelineEntry[]
  operation: string
  // what, phase, and how long are of the operation; empty and 0 where its entries do not tell.
  what: string
  phase: string
  took: number
  actor: string
}

// folded makes one line of the entries of each operation, where its newest entry is, and one of each other entry.
export function folded(entries: TimelineEntry[]): Line[] {
  const lines: Line[] = []
  const of = new Map<string, Line>()
  for (const e of entries) {
    const known = e.operation_id ? of.get(e.operation_id) : undefined
    if (known) {
      known.entries.push(e)
      continue
    }
    const line: Line = { entries: [e], operation: e.operation_id, what: '', phase: '', took: 0, actor: e.actor }
    if (e.operation_id) of.set(e.operation_id, line)
    lines.push(line)
  }
  for (const l of of.values()) {
    const told = l.entries.find((e) => e.kind === 'operation')
    l.what = told?.fields.type ?? ''
    l.phase = told?.fields.phase ?? ''
    // The first entry names who asked; what follows is told by agents and by the controller.
    l.actor = l.entries.at(-1)?.actor ?? ''
    l.took = Date.parse(l.entries[0]?.ts ?? '') - Date.parse(l.entries.at(-1)?.ts ?? '')
  }
  return lines
}
