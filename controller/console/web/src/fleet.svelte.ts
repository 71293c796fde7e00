// What the page knows of every machine: the API's map of the fleet, in columns, kept up to date by its watch.
import { connection, get, lines, poll, Refusal, Unreachable } from './api.svelte'
import { stateOf, states, unknownCondition } from './states'
import type { Counts, FleetSummary, Machine, MachineEvent, MachineMap } from './types'

// Row is a machine that needs somebody.
export interface Row {
  id: string
  state: string
  site: string
  rack: string
  reason: string
  message: string
}

// Look is what of the fleet is on the map, in which groups within its sites, and in the colours of which value.
export interface Look {
  filter: string
  by: string
  colour: string
}

export const plain: Look = { filter: '', by: 'rack', colour: 'effective_state' }

export function same(a: Look, b: Look): boolean {
  return a.filter === b.filter && a.by === b.by && a.colour === b.colour
}

// Group is machines beside each other in the columns.
export interface Group {
  site: string
  name: string
  from: number
  count: number
}

// Fleets that are too large for one map are refused with this reason.
const tooLarge = 'TOO_MANY_GROUPS'

// Shown is what the first screen shows of a fleet: as it is, or as it was.
// Alike are machines that need somebody for one reason.
export interface Alike {
  state: string
  reason: string
  ids: string[]
}

export class Shown {
  // The columns. A state and a reason are the number of a word; gone is a machine that is no longer there.
  ids: string[] = []
  groups: Group[] = []
  state = new Uint8Array()
  reason = new Uint16Array()
  value = new Uint32Array()
  reasons: string[] = ['']
  values: string[] = []
  look = $state.raw(plain)
  // version changes with what is known, at most some times a second, and structure when machines have come, gone or moved.
  version = $state(0)
  structure = $state(0)
  total = $state(0)
  // known is how many machines are on the map.
  known = $state(0)
  begun = $state(false)
  // refused says why there is no map, if there is none.
  refused = $state('')
  // counts are of the whole fleet, or not known yet.
  counts = $state<Record<string, number> | null>(null)
  protected places = new Map<string, number>()
  protected tally: number[] = []
  protected paint: ((places: Iterable<number>) => void) | null = null

  // painted tells a painter of the places of machines that have changed, until what it returns is called.
  painted(by: (places: Iterable<number>) => void): () => void {
    this.paint = by
    return () => {
      if (this.paint === by) this.paint = null
    }
  }

  // partial: not every machine is on the map.
  get partial(): boolean {
    return this.begun && (this.refused !== '' || this.look.filter !== '')
  }

  stateAt(i: number): string {
    return states[this.state[i] ?? gone]?.name ?? ''
  }

  reasonAt(i: number): string {
    return this.reasons[this.reason[i] ?? 0] ?? ''
  }

  // groupAt finds the group of a machine: they are in order.
  groupAt(i: number): Group | undefined {
    let low = 0
    let high = this.groups.length - 1
    while (low < high) {
      const middle = (low + high + 1) >> 1
      if ((this.groups[middle]?.from ?? 0) <= i) low = middle
      else high = middle - 1
    }
    return this.groups[low]
  }

  // alike are machines that need somebody for one reason, where at least so many do: one entry each, the largest first.
  alike(least: number, without = ''): Alike[] {
    const all = new Map<string, Alike>()
    for (let i = 0; i < this.state.length; i++) {
      const reason = this.reasonAt(i)
      if ((this.state[i] ?? gone) > 1 || !reason || reason === without) continue
      const key = `${this.state[i]} ${reason}`
      const one = all.get(key) ?? { state: this.stateAt(i), reason, ids: [] }
      one.ids.push(this.ids[i] ?? '')
      all.set(key, one)
    }
    return [...all.values()].filter((a) => a.ids.length >= least).sort((a, b) => b.ids.length - a.ids.length)
  }

  // needy are the first machines that need somebody, worst first; those of some reasons are left out.
  needy(most: number, without: string[] = []): Row[] {
    const out: Row[] = []
    for (const wanted of [0, 1]) {
      for (let i = this.state.indexOf(wanted); i >= 0 && out.length < most; i = this.state.indexOf(wanted, i + 1)) {
        const g = this.groupAt(i)
        if (without.includes(this.reasonAt(i))) continue
        out.push({
          id: this.ids[i] ?? '', state: this.stateAt(i), site: g?.site ?? '', reason: this.reasonAt(i), message: '',
          rack: this.look.by === 'rack' ? (g?.name ?? '') : '',
        })
      }
    }
    return out
  }

  protected show(m: MachineMap, look: Look): void {
    const n = m.total
    // The server numbers states in its own order.
    const numbers = m.states.map((s) => states.indexOf(stateOf(s)))
    this.ids = []
    this.groups = []
    this.state = new Uint8Array(n)
    this.reason = new Uint16Array(n)
    this.value = new Uint32Array(n)
    this.reasons = m.reasons
    this.values = m.values
    this.tally = states.map(() => 0)
    for (const g of m.groups) {
      const from = this.ids.length
      this.groups.push({ site: g.values[0] ?? '', name: g.values[1] ?? '', from, count: g.machine_ids.length })
      for (let i = 0; i < g.machine_ids.length; i++) {
        const s = numbers[g.machine_states[i] ?? 0] ?? gone
        this.ids.push(g.machine_ids[i] ?? '')
        this.state[from + i] = s
        this.reason[from + i] = g.machine_reasons[i] ?? 0
        this.value[from + i] = g.machine_values[i] ?? 0
        this.tally[s] = (this.tally[s] ?? 0) + 1
      }
    }
    this.places = new Map()
    this.look = look
    this.refused = ''
    this.begun = true
    this.structure++
    this.changed()
  }

  protected changed(): void {
    this.version++
    this.known = this.ids.length
    if (!this.partial) this.countShown()
  }

  protected clear(): void {
    this.ids = []
    this.groups = []
    this.state = new Uint8Array()
    this.places = new Map()
    this.begun = false
    this.refused = ''
    this.counts = null
  }

  // read asks for the whole map.
  protected async read(look: Look, signal: AbortSignal, as_of?: string): Promise<string> {
    const query = {
      filter: look.filter, group_by: look.by === 'site' ? ['site'] : ['site', look.by],
      value_of: look.colour === plain.colour ? '' : look.colour, as_of,
    }
    try {
      const m = await get<MachineMap>('/machine-map', query, signal)
      this.show(m, look)
      return m.next_cursor
    } catch (e) {
      if (!(e instanceof Refusal) || e.reason === 'MOMENT_NOT_KEPT') throw e
      const counts = as_of ? null : this.counts // which are of the whole fleet
      this.clear()
      this.counts = counts
      this.look = look
      this.refused = e.reason === tooLarge ? 'These machines are too many for a map. Filter them, by a site for one.' : e.message
      this.begun = true
      this.structure++
      return ''
    }
  }

  protected counted(groups: Counts['groups'], total: number): void {
    this.counts = Object.fromEntries(groups.map((g) => [g.values[0] ?? '', g.count]))
    this.total = total
  }

  protected countShown(): void {
    this.counts = Object.fromEntries(states.map((s, i) => [s.name, this.tally[i] ?? 0]))
    this.total = this.known
  }

  // askCounts has the controller count the fleet where the map is of a part.
  protected async askCounts(signal: AbortSignal, as_of?: string): Promise<void> {
    try {
      const a = await get<Counts>('/machine-counts', { group_by: 'effective_state', as_of }, signal)
      this.counted(a.groups, a.total)
    } catch (e) {
      // Who may see some machines alone may not count all.
      if (!(e instanceof Refusal) || e.status !== 403) throw e
      this.countShown()
    }
  }
}

// gone is the state of a machine that is no longer on the map.
const gone = 255

// Changes are put on the screen so often, and a whole map is read again no sooner than this after the one before.
const together = 100
const apart = 1000

class Fleet extends Shown {
  // dirty are the places of machines that have changed and are not painted yet.
  private dirty = new Set<number>()
  private cursor = ''
  // held: the caller may not watch the fleet, and reads it again and again.
  private held = false
  // summary is as old as its as_of says; null until it is known.
  summary = $state.raw<FleetSummary | null>(null)
  private stops: (() => void)[] = []
  private wanted: Look = plain
  private again: AbortController | null = null
  private flush = 0
  private took = 0
  private readAt = 0

  start(): void {
    if (this.stops.length) return
    this.stops = [poll(1000, (signal, ok) => this.step(signal, ok))]
  }

  end(): void {
    for (const stop of this.stops) stop()
    this.stops = []
    this.again?.abort()
    this.cursor = ''
    this.held = false
    this.wanted = plain
    this.summary = null
    this.clear()
  }

  // see shows the fleet in another way.
  see(look: Look): void {
    if (same(look, this.wanted)) return
    this.wanted = look
    this.cursor = ''
    this.again?.abort()
  }

  private async step(signal: AbortSignal, ok: () => void): Promise<void> {
    while (!signal.aborted && !document.hidden) {
      if (!this.cursor || this.held) {
        const before = Date.now()
        this.cursor = await this.read(this.wanted, signal)
        ok()
        this.readAt = Date.now()
        this.took = this.readAt - before
      }
      // A look may have been asked for meanwhile.
      if (this.look !== this.wanted) this.cursor = ''
      else if (this.refused || this.held) await this.rest(this.refused ? 30_000 : 5000, signal)
      else await this.follow(signal, ok)
    }
  }

  // moving asks again and again: so often while machines change, and seldom while nothing does or that cannot be seen.
  moving(every: number, seldom: number, run: (signal: AbortSignal) => Promise<void>): () => void {
    let of = -1
    let at = 0
    return poll(every, async (signal) => {
      if (!this.partial && of === this.version && Date.now() - at < seldom) return
      const version = this.version
      await run(signal)
      of = version
      at = Date.now()
    })
  }

  // summarize has the numbers of the first screen, before the map of a large fleet is there.
  async summarize(signal: AbortSignal): Promise<void> {
    try {
      this.summary = await get<FleetSummary>('/fleet-summary', {}, signal)
      if (!this.begun || this.partial) this.counted(this.summary.machines, this.summary.total_machines)
    } catch (e) {
      // Who may see some machines alone counts those that are on the map.
      if (!(e instanceof Refusal) || e.status !== 403) throw e
      if (this.begun) this.countShown()
    }
  }

  // rest waits, unless another look is asked for.
  private async rest(ms: number, signal: AbortSignal): Promise<void> {
    const again = (this.again = new AbortController())
    await new Promise<void>((done) => {
      const timer = setTimeout(done, ms)
      for (const s of [signal, again.signal]) s.addEventListener('abort', () => (clearTimeout(timer), done()), { once: true })
    })
  }

  // follow takes changes until something has moved, the page is hidden, or the stream ends.
  private async follow(signal: AbortSignal, ok: () => void): Promise<void> {
    const again = (this.again = new AbortController())
    const hidden = () => document.hidden && again.abort()
    document.addEventListener('visibilitychange', hidden)
    let moved = 0
    try {
      const query = { filter: this.look.filter, cursor: this.cursor }
      await lines<MachineEvent>('/machine-events', query, AbortSignal.any([signal, again.signal]), (e) => {
        connection.lastOk = Date.now()
        this.cursor = e.cursor
        if (e.machine && this.take(e.kind, e.machine)) return
        if (!e.machine || moved) return
        // Machines that come all the time take a tenth of it.
        moved = window.setTimeout(() => {
          this.cursor = ''
          again.abort()
        }, Math.max(200, this.readAt + Math.max(apart, 10 * this.took) - Date.now()))
      }, ok)
      await this.rest(500, signal) // it ended well, as when a controller stops
    } catch (e) {
      if (again.signal.aborted || signal.aborted) return
      if (e instanceof Unreachable) throw e
      if (!(e instanceof Refusal)) {
        connection.failing = 'the controller does not answer'
        throw new Unreachable(connection.failing)
      }
      if (e.status === 403) this.held = true
      else if (/CURSOR/.test(e.reason)) this.cursor = '' // of before a restore: begin again
      else throw e
    } finally {
      clearTimeout(moved)
      document.removeEventListener('visibilitychange', hidden)
    }
  }

  // take notes a change; false where the map must be read again for it.
  private take(kind: string, m: Machine): boolean {
    if (!this.places.size) for (let i = 0; i < this.ids.length; i++) this.places.set(this.ids[i] ?? '', i)
    const i = this.places.get(m.machine_id)
    const leaves = kind === 'LEFT' || kind === 'DELETED'
    if (i === undefined) return leaves
    const g = this.groupAt(i)
    if (leaves || g?.site !== valueOf(m, 'site') || (this.look.by !== 'site' && g.name !== valueOf(m, this.look.by))) {
      this.put(i, gone)
      return false
    }
    const reason = m.status?.attention_reason ?? ''
    this.reason[i] = numberOf(this.reasons, reason)
    if (this.look.colour !== plain.colour) this.value[i] = numberOf(this.values, valueOf(m, this.look.colour))
    this.put(i, states.indexOf(stateOf(m.status?.effective_state)))
    return true
  }

  private put(i: number, state: number): void {
    const before = this.state[i] ?? gone
    this.tally[before] = (this.tally[before] ?? 0) - 1
    this.tally[state] = (this.tally[state] ?? 0) + 1
    this.state[i] = state
    this.dirty.add(i)
    this.flush ||= window.setTimeout(() => {
      this.flush = 0
      this.paint?.(this.dirty)
      this.dirty.clear()
      this.changed()
    }, together)
  }
}

function numberOf(words: string[], word: string): number {
  const n = words.indexOf(word)
  return n >= 0 ? n : words.push(word) - 1
}

// valueOf is a machine's value of a key of a filter, as the API's map has it.
export function valueOf(m: Machine, key: string): string {
  const [family = '', ...rest] = key.split('.')
  const name = rest.join('.')
  if (name && family.startsWith('label')) return m.labels[name] ?? ''
  if (name) {
    const c = m.status?.conditions.find((c) => c.type === name)
    return c && unknownCondition(c) ? 'unknown' : String(c?.status ?? false)
  }
  switch (key) {
    case 'machine_id':
      return m.machine_id
    case 'image':
      return m.status?.os_image_digest ?? ''
    case 'state':
    case 'effective_state':
      return stateOf(m.status?.effective_state).name
    case 'phase':
      return m.status?.phase ?? ''
    case 'node_state':
      return (m.status?.node_state ?? '').replace('NODE_STATE_', '').toLowerCase()
    case 'cluster':
      return m.spec?.target_cluster_ref ?? ''
    case 'rack': // as the API groups by it
      return m.spec?.rack || (m.labels.rack ?? '')
    case 'site':
    case 'region':
    case 'group':
    case 'provider':
    case 'location':
    case 'serial':
      return m.spec?.[key] ?? ''
  }
  return ''
}

// rowOf is what the list of those that need somebody has of a machine.
export function rowOf(m: Machine): Row {
  return {
    id: m.machine_id,
    state: stateOf(m.status?.effective_state).name,
    site: m.spec?.site ?? '',
    rack: valueOf(m, 'rack'),
    reason: m.status?.attention_reason ?? '',
    message: m.status?.attention_message ?? '',
  }
}

export const fleet = new Fleet()
