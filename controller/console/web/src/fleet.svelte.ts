// What the page knows of every machine, kept up to date by the API's reconcile cursor. A row keeps what the map, the
// numbers and the attention list need, and no more.
import { get, poll } from './api.svelte'
import { stateOf } from './states'
import type { Counts, Machine } from './types'

export interface Row {
  id: string
  state: string
  site: string
  rack: string
  group: string
  provider: string
  image: string
  reason: string
  message: string
  simulated: boolean
  version: string
}

export interface Answer {
  machines: Machine[]
  next_page_token: string
  next_cursor: string
  total_size: number
  more: boolean
}

// Beyond so many machines the map shows the first ones, and says so; numbers are then asked of the controller.
export const most = 20_000
const page = 1000

// Shown is what the first screen shows of a fleet: as it is, or as it was.
export class Shown {
  rows = new Map<string, Row>()
  // version changes when rows has, and structure when a machine has come, gone or moved.
  version = $state(0)
  structure = $state(0)
  total = $state(0)
  // known is how many rows there are.
  known = $state(0)
  complete = $state(false)
  begun = $state(false)
  // counts are of the whole fleet, or not known yet.
  counts = $state<Record<string, number> | null>(null)

  get partial(): boolean {
    return this.begun && !this.complete
  }

  protected show(rows: Map<string, Row>, complete: boolean): void {
    this.rows = rows
    this.complete = complete
    this.begun = true
    this.structure++
    this.changed()
  }

  protected changed(): void {
    this.version++
    this.known = this.rows.size
    if (!this.complete) return
    this.total = this.rows.size
    const counts: Record<string, number> = {}
    for (const r of this.rows.values()) counts[r.state] = (counts[r.state] ?? 0) + 1
    this.counts = counts
  }

  protected clear(): void {
    this.rows = new Map()
    this.begun = this.complete = false
    this.counts = null
  }

  // askCounts has the controller count what is too much for the page.
  protected async askCounts(signal: AbortSignal, moment?: string): Promise<void> {
    const a = await get<Counts>('/machine-counts', { group_by: 'effective_state', as_of: moment }, signal)
    this.counts = Object.fromEntries(a.groups.map((g) => [g.values[0] ?? '', g.count]))
    this.total = a.total
  }
}

class Fleet extends Shown {
  private cursor = ''
  private stop: (() => void) | null = null

  start(): void {
    this.stop ??= poll(1000, (signal) => this.step(signal))
  }

  end(): void {
    this.stop?.()
    this.stop = null
    this.cursor = ''
    this.clear()
  }

  private async step(signal: AbortSignal): Promise<void> {
    if (!this.cursor) await this.walk(signal)
    else await this.reconcile(signal)
    if (!this.complete) await this.askCounts(signal)
  }

  private async walk(signal: AbortSignal): Promise<void> {
    const rows = new Map<string, Row>()
    let token = ''
    let cursor = ''
    do {
      const a: Answer = await get('/machines', { page_size: page, page_token: token }, signal)
      // Changes that come while pages are read are after the first page's cursor.
      cursor ||= a.next_cursor
      if (!token) this.total = a.total_size
      for (const m of a.machines) rows.set(m.machine_id, rowOf(m))
      token = a.next_page_token
      if (!this.begun || token) this.show(rows, !token)
      if (token && !this.counts) await this.askCounts(signal)
    } while (token && rows.size < most)
    this.total = Math.max(this.total, rows.size)
    this.show(rows, !token)
    this.cursor = cursor
  }

  private async reconcile(signal: AbortSignal): Promise<void> {
    let changed = false
    let moved = false
    for (let more = true; more; ) {
      let a: Answer
      try {
        a = await get('/machines', { cursor: this.cursor, page_size: page }, signal)
      } catch (e) {
        // A cursor of before a restore is refused: begin again.
        if ((e as { status?: number }).status === 400) this.cursor = ''
        throw e
      }
      for (const m of a.machines) {
        const known = this.rows.get(m.machine_id)
        if (m.deleted_at) moved = this.rows.delete(m.machine_id) || moved
        else if (known?.version !== m.version || known.state !== stateOf(m.status?.effective_state).name) {
          const row = rowOf(m)
          if (known || this.complete) this.rows.set(m.machine_id, row)
          moved ||= !known || placeOf(known) !== placeOf(row)
          changed = true
        }
      }
      this.cursor = a.next_cursor
      more = a.more
    }
    if (moved) this.structure++
    if (changed || moved) this.changed()
  }
}

const placeOf = (r: Row): string => [r.site, r.rack, r.group, r.provider].join('\n')

export function rowOf(m: Machine): Row {
  const s = m.status
  const spec = m.spec
  return {
    id: m.machine_id,
    state: stateOf(s?.effective_state).name,
    site: spec?.site ?? '',
    rack: spec?.rack || m.labels.rack || '',
    group: spec?.group ?? '',
    provider: spec?.provider ?? '',
    image: (s?.os_image_digest ?? '').slice(0, 19),
    reason: s?.attention_reason ?? '',
    message: s?.attention_message ?? '',
    simulated: s?.simulated ?? false,
    version: m.version,
  }
}

export const fleet = new Fleet()
