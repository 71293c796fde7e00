import type { Time } from './types'
import { zone } from './zone.svelte'

const collator = new Intl.Collator('en', { numeric: true })

// natural orders names as people do: r9 before r10.
export const natural = collator.compare

const clockIn = (timeZone: string | undefined) =>
  new Intl.DateTimeFormat(undefined, { hour: '2-digit', minute: '2-digit', second: '2-digit', hourCycle: 'h23', timeZone })
const dayIn = (timeZone: string | undefined) =>
  new Intl.DateTimeFormat(undefined, { year: 'numeric', month: 'short', day: '2-digit', timeZone })
const formats = {
  utc: { clock: clockIn('UTC'), day: dayIn('UTC') },
  own: { clock: clockIn(undefined), day: dayIn(undefined) },
}

// zoned is a time in the zone of the page, with the day where it is not today.
export function zoned(t: Time | Date, now = new Date()): string {
  if (!t) return ''
  const d = typeof t === 'string' ? new Date(t) : t
  const { clock, day } = zone.utc ? formats.utc : formats.own
  const hours = clock.format(d)
  return day.format(d) === day.format(now) ? hours : `${day.format(d)} ${hours}`
}

// stamp is a moment as the API takes it.
export const stamp = (t: Date | number): string => new Date(t).toISOString()

// field is a moment as an input of type datetime-local takes it, in the zone of the page.
export function field(t: Date | null): string {
  if (!t) return ''
  const offset = zone.utc ? 0 : t.getTimezoneOffset() * 60_000
  return stamp(t.getTime() - offset).slice(0, 19)
}

// fromField is the moment that such an input holds; NaN of none.
export const fromField = (text: string): number => Date.parse(zone.utc ? text + 'Z' : text)

export function utc(t: Time): string {
  return t ? stamp(new Date(t)).replace('T', ' ').replace(/\.\d+Z$/, ' UTC') : ''
}

// took is a length of time, short: 42 s, 3 min, 5 h 12 min, 9 d.
export function took(ms: number): string {
  const s = Math.max(0, Math.round(ms / 1000))
  if (s < 60) return `${s} s`
  const m = Math.floor(s / 60)
  if (m < 60) return m < 10 && s % 60 ? `${m} min ${s % 60} s` : `${m} min`
  const h = Math.floor(m / 60)
  if (h < 48) return m % 60 ? `${h} h ${m % 60} min` : `${h} h`
  return `${Math.floor(h / 24)} d`
}

export function ago(t: Time, now: number): string {
  return t ? took(now - new Date(t).getTime()) : ''
}

export function bytes(n: number): string {
  for (const unit of ['B', 'KiB', 'MiB', 'GiB']) {
    if (n < 1024) return `${n < 10 && unit !== 'B' ? n.toFixed(1) : Math.round(n)} ${unit}`
    n /= 1024
  }
  return `${n.toFixed(1)} TiB`
}

const grouped = new Intl.NumberFormat('en')
export const count = (n: number): string => grouped.format(n)

// words makes READY or NODE_STATE_ACTIVE readable.
export function words(name: string | undefined, prefix = ''): string {
  if (!name || name.endsWith('_UNSPECIFIED')) return '—'
  const plain = (prefix && name.startsWith(prefix) ? name.slice(prefix.length) : name).replaceAll('_', ' ').toLowerCase()
  return plain.charAt(0).toUpperCase() + plain.slice(1)
}

// text decodes base64, which is how the API writes bytes.
export function text(base64: string): string {
  return new TextDecoder().decode(Uint8Array.from(atob(base64), (c) => c.charCodeAt(0)))
}

// base64 is how the API takes bytes.
export function base64(text: string): string {
  return btoa(Array.from(new TextEncoder().encode(text), (b) => String.fromCharCode(b)).join(''))
}
