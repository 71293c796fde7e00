// The fleet as it was at a moment, which the controller answers from what it has kept.
import { get, Refusal, said, Unreachable } from './api.svelte'
import { most, rowOf, Shown, type Answer, type Row } from './fleet.svelte'

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

  private async walk(moment: number, signal: AbortSignal): Promise<void> {
    const as_of = new Date(moment).toISOString()
    const rows = new Map<string, Row>()
    let token = ''
    do {
      const a: Answer = await get('/machines', { as_of, page_token: token }, signal)
      for (const m of a.machines) rows.set(m.machine_id, rowOf(m))
      token = a.next_page_token
    } while (token && rows.size < most)
    if (token) await this.askCounts(signal, as_of)
    this.at = moment
    this.show(rows, !token)
  }
}

export const past = new Past()
