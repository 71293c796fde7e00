// The fleet as it was at a moment, which the controller answers from what it has kept.
import { get, Refusal, said, Unreachable } from './api.svelte'
import { stamp } from './format'
import { plain, rowOf, same, Shown, type Look, type Row } from './fleet.svelte'
import type { Machine } from './types'

const minute = 60_000
// So long a moment stays on the screen while the past is played, and in so many of them it goes by.
const still = 700
const pictures = 96

class Past extends Shown {
  // wanted is the moment that was asked for, at the one that is on the screen; 0 is now.
  wanted = $state(0)
  at = $state(0)
  playing = $state(false)
  failing = $state('')
  // span is how far back the slider goes, since the first moment that is kept, as far as that is known.
  span = $state(24 * 60 * minute)
  since = $state(0)
  // needing are the first machines that needed somebody.
  needing = $state.raw<Row[]>([])
  private asked: Look = plain
  private busy: Promise<void> | null = null
  private stop = new AbortController()

  get on(): boolean {
    return this.wanted > 0
  }

  // seek shows a moment. Of several that are asked for while one is read, the last is read next.
  async seek(moment: number): Promise<void> {
    if (!(moment < Date.now())) return this.back()
    this.failing = ''
    this.wanted = Math.max(Math.floor(moment / 1000) * 1000, this.since)
    this.busy ??= this.follow().finally(() => (this.busy = null))
    await this.busy
  }

  back(): void {
    this.stop.abort()
    this.stop = new AbortController()
    this.wanted = this.at = 0
    this.playing = false
    this.failing = ''
    this.clear()
  }

  // play goes on from the moment that is shown, or from the beginning of the slider, until now.
  async play(): Promise<void> {
    this.playing = true
    if (!this.on) await this.seek(Date.now() - this.span)
    while (this.playing && this.on && !this.failing) {
      const began = Date.now()
      await this.seek(this.wanted + this.span / pictures)
      await new Promise((r) => setTimeout(r, Math.max(0, still - (Date.now() - began))))
    }
    this.playing = false
  }

  private async follow(): Promise<void> {
    while (this.wanted && this.wanted !== this.at) {
      const { signal } = this.stop
      try {
        await this.walk(this.wanted, signal)
      } catch (e) {
        if (signal.aborted) continue
        this.failing = said(e)
        if (e instanceof Refusal && e.reason === 'MOMENT_NOT_KEPT' && e.metadata.since && !this.since) {
          // The first moment that is kept is shown instead.
          this.wanted = this.since = Math.ceil(Date.parse(e.metadata.since) / 1000) * 1000
          continue
        }
        if (!(e instanceof Refusal || e instanceof Unreachable)) console.error(e)
        return
      }
    }
  }

  // see shows the moment in another way.
  see(look: Look): void {
    if (same(look, this.asked)) return
    this.asked = look
    if (!this.on) return
    this.at = 0
    void this.seek(this.wanted)
  }

  private async walk(moment: number, signal: AbortSignal): Promise<void> {
    const as_of = stamp(moment)
    const look = this.asked
    await this.read(look, signal, as_of)
    if (this.partial) await this.askCounts(signal, as_of)
    const filter = 'effective_state in (BLOCKED, ATTENTION)'
    const needing = (this.counts?.BLOCKED ?? 0) + (this.counts?.ATTENTION ?? 0)
    const a = needing ? await get<{ machines: Machine[] }>('/machines', { filter, as_of, page_size: 12 }, signal) : { machines: [] }
    this.needing = a.machines.map(rowOf).sort((x, y) => Number(y.state === 'BLOCKED') - Number(x.state === 'BLOCKED'))
    if (look === this.asked) this.at = moment
  }
}

export const past = new Past()
