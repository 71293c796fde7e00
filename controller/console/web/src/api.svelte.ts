// The one way to the controller: the public REST API, with the cookie of the session.
import { untrack } from 'svelte'

export interface Person {
  name: string
  scope: 'read' | 'operate' | 'admin'
  expires_at: string
}

// Refusal is an answer that says no, with the reason of the API where it has one.
export class Refusal extends Error {
  constructor(
    readonly status: number,
    message: string,
    readonly reason = '',
    readonly metadata: Record<string, string> = {},
  ) {
    super(message)
  }
}

// Unreachable says that nobody answered, or that who answered cannot reach the database.
export class Unreachable extends Error {}

// Reads are quick; a write may take its time, and is not given up early.
const readTime = 6000
const writeTime = 30_000
// What has not been confirmed for so long is shown as old.
const fresh = 10_000
// Where other calls are answered meanwhile, a call that fails is no lost connection.
const answering = 2000
// A call that was not answered is asked again so soon.
const retry = 2000

// Refusals are the calls that were not answered as asked. The page shows those that no section has shown above everything
// else, so that what could not be read is never taken for empty.
class Refusals {
  private all = $state.raw<ReadonlyMap<unknown, { error: Error; shown: boolean }>>(new Map())
  // A section that shows an error takes its words by said, and is not repeated.
  readonly shown = new WeakSet<object>()

  // words are of those that no section shows. While nothing is answered at all, the page names that alone.
  get words(): string[] {
    const all = [...this.all.values()].filter((r) => !r.shown && !(connection.stale && r.error instanceof Unreachable))
    return [...new Set(all.map((r) => r.error.message))]
  }

  // unread: a part of the page was not read, and what it shows may be no longer so.
  get unread(): boolean {
    return [...this.all.values()].some((r) => r.error instanceof Unreachable)
  }

  // put notes a refusal of a call; a later answer to the same call takes it back by drop.
  put(call: unknown, error: Error): void {
    const shown = this.shown.has(error)
    const before = this.all.get(call)
    if (before?.error.message === error.message && before.shown === shown) return
    this.all = new Map(this.all).set(call, { error, shown })
  }

  drop(call: unknown): void {
    if (!this.all.has(call)) return
    const left = new Map(this.all)
    left.delete(call)
    this.all = left
  }

  clear(): void {
    if (this.all.size) this.all = new Map()
  }
}

export const refusals = new Refusals()

// An error of a call that no code waits for is shown as well.
window.addEventListener('unhandledrejection', (e) => {
  if (!(e.reason instanceof Refusal || e.reason instanceof Unreachable)) return
  e.preventDefault()
  refusals.put(e.reason.message, new Refusal(0, e.reason.message))
})

class Connection {
  person = $state<Person | null>(null)
  // Whether it is known yet if there is a session.
  asked = $state(false)
  lastOk = $state(0)
  failing = $state('')
  now = $state(Date.now())

  // stale: what is on the screen may be no longer so.
  get stale(): boolean {
    return this.lastOk > 0 && (this.failing !== '' || this.now - this.lastOk > fresh)
  }

  // old: stale, or a part of the page was not read.
  get old(): boolean {
    return this.stale || refusals.unread
  }

  may(scope: Person['scope']): boolean {
    const order = ['read', 'operate', 'admin']
    return this.person !== null && order.indexOf(this.person.scope) >= order.indexOf(scope)
  }
}

export const connection = new Connection()

setInterval(() => (connection.now = Date.now()), 1000)

type Query = Record<string, string | number | boolean | string[] | undefined>

async function send(path: string, init: RequestInit, signal?: AbortSignal): Promise<Response> {
  const timeout = init.method === 'GET' ? readTime : writeTime
  const limit = AbortSignal.timeout(timeout)
  const headers: Record<string, string> = { 'X-Ingot-Console': '1' }
  if (init.body) headers['Content-Type'] = 'application/json'
  let answer: Response
  try {
    answer = await fetch(path, {
      ...init,
      headers,
      credentials: 'same-origin',
      cache: 'no-store',
      redirect: 'error',
      signal: signal ? AbortSignal.any([signal, limit]) : limit,
    })
  } catch (e) {
    if (signal?.aborted) throw e
    connection.failing = limit.aborted ? `no answer within ${timeout / 1000} s` : 'the controller does not answer'
    throw new Unreachable(connection.failing)
  }
  if (noAnswer(answer)) {
    const { message } = await refusalOf(answer)
    if (Date.now() - connection.lastOk > answering) connection.failing = message
    throw new Unreachable(message)
  }
  if (answer.ok || answer.status !== 401) {
    connection.failing = ''
    connection.lastOk = Date.now()
  }
  if (answer.ok) return answer
  throw await refused(answer, path)
}

// noAnswer: the controller could not answer, as while it waits for its database. 501 is an answer.
const noAnswer = (a: Response): boolean => a.status >= 500 && a.status !== 501

// refused is the error of a refused call. After a 401 nothing on the screen is live: the session may be over.
async function refused(answer: Response, path: string): Promise<Refusal> {
  const refusal = await refusalOf(answer)
  if (answer.status === 401 && path !== session) {
    connection.failing = `the controller does not accept the session: ${refusal.message}`
    void confirmSession()
  }
  return refusal
}

async function refusalOf(answer: Response): Promise<Refusal> {
  try {
    const body = (await answer.json()) as {
      message?: string
      details?: { reason?: string; metadata?: Record<string, string> }[]
    }
    const why = body.details?.find((d) => d.reason)
    return new Refusal(answer.status, body.message ?? answer.statusText, why?.reason, why?.metadata)
  } catch {
    return new Refusal(answer.status, `${answer.status} ${answer.statusText}`)
  }
}

export function path(strings: TemplateStringsArray, ...parts: string[]): string {
  return strings.reduce((all, s, i) => all + s + (i < parts.length ? encodeURIComponent(parts[i] ?? '') : ''), '')
}

function withQuery(where: string, query?: Query): string {
  const q = new URLSearchParams()
  for (const [k, v] of Object.entries(query ?? {})) {
    for (const one of Array.isArray(v) ? v : [v]) if (one !== undefined && one !== '') q.append(k, String(one))
  }
  const text = q.toString()
  return '/api/v1' + where + (text ? '?' + text : '')
}

export async function get<T>(where: string, query?: Query, signal?: AbortSignal): Promise<T> {
  return read<T>(await send(withQuery(where, query), { method: 'GET' }, signal), signal)
}

async function write<T>(method: string, where: string, body?: unknown, query?: Query): Promise<T> {
  return read<T>(await send(withQuery(where, query), { method, body: body === undefined ? undefined : JSON.stringify(body) }))
}
export const post = <T>(where: string, body: unknown, query?: Query): Promise<T> => write('POST', where, body, query)
export const put = <T>(where: string, body: unknown, query?: Query): Promise<T> => write('PUT', where, body, query)
export const patch = <T>(where: string, body: unknown, query?: Query): Promise<T> => write('PATCH', where, body, query)
export const remove = <T>(where: string, query?: Query): Promise<T> => write('DELETE', where, undefined, query)

// upload sends a file, and says how many of its bytes have gone. fetch cannot say that.
export async function upload<T>(where: string, query: Query, file: Blob, sent: (bytes: number) => void, signal: AbortSignal): Promise<T> {
  const request = new XMLHttpRequest()
  const answer = new Promise<Response>((done, failed) => {
    const broken = () => failed(signal.aborted ? new Error('it was given up; no image was added') : new Unreachable('the upload broke off; no image was added'))
    request.upload.onprogress = (e) => sent(e.loaded)
    request.onload = () => done(new Response(request.response as ArrayBuffer, { status: request.status, statusText: request.statusText }))
    request.onerror = broken
    request.onabort = broken
  })
  request.open('PUT', withQuery(where, query))
  request.responseType = 'arraybuffer'
  request.setRequestHeader('X-Ingot-Console', '1')
  request.setRequestHeader('Content-Type', 'application/octet-stream')
  signal.addEventListener('abort', () => request.abort(), { once: true })
  request.send(file)
  const got = await answer
  if (!got.ok) throw await refused(got, where)
  return read<T>(got)
}

// read takes an answer whose end may never come.
async function read<T>(answer: Response, signal?: AbortSignal): Promise<T> {
  try {
    return (await answer.json()) as T
  } catch (e) {
    if (signal?.aborted) throw e
    connection.failing = 'the answer of the controller broke off'
    throw new Unreachable(connection.failing)
  }
}

// lines reads a stream of the API until it ends or is stopped.
export async function lines<T>(where: string, query: Query, signal: AbortSignal, take: (one: T) => void, opened?: () => void): Promise<void> {
  const answer = await fetch(withQuery(where, query), {
    headers: { 'X-Ingot-Console': '1' },
    credentials: 'same-origin',
    cache: 'no-store',
    signal,
  })
  if (noAnswer(answer)) throw new Unreachable((await refusalOf(answer)).message)
  if (!answer.ok || !answer.body) throw await refused(answer, where)
  opened?.()
  const reader = answer.body.pipeThrough(new TextDecoderStream()).getReader()
  let rest = ''
  for (;;) {
    const { value, done } = await reader.read()
    if (done) return
    rest += value
    const whole = rest.split('\n')
    rest = whole.pop() ?? ''
    for (const line of whole) {
      if (!line) continue
      const one = JSON.parse(line) as { result?: T; error?: { message?: string } }
      if (one.error) throw new Refusal(0, one.error.message ?? 'the stream ended')
      if (one.result) take(one.result)
    }
  }
}

const session = '/console/session'

export async function loadSession(): Promise<void> {
  try {
    connection.person = await read<Person>(await send(session, { method: 'GET' }))
  } catch (e) {
    if (!(e instanceof Refusal)) throw e
    connection.person = null // the page of the sign-on is the answer to it
  }
  connection.asked = true
}

let confirming = false

// confirmSession looks twice before it takes a person off the page: a controller that has just started does not know
// every token yet.
async function confirmSession(): Promise<void> {
  if (confirming || !connection.person) return
  confirming = true
  try {
    for (let i = 0; i < 4; i++) {
      await new Promise((r) => setTimeout(r, 700))
      try {
        await send(session, { method: 'GET' })
        return
      } catch (e) {
        if (!(e instanceof Refusal)) return
      }
    }
    connection.person = null
    connection.failing = ''
  } finally {
    confirming = false
  }
}

export async function signOn(by: { token: string } | { code: string }): Promise<void> {
  connection.person = await read<Person>(await send(session, { method: 'POST', body: JSON.stringify(by) }))
  connection.asked = true
}

// hasProvider says whether people can sign on with an account.
export async function hasProvider(): Promise<boolean> {
  return (await read<{ provider: boolean }>(await send('/console/sign-on', { method: 'GET' }))).provider
}

// refusals are words for why the provider's way in was refused. The address has the reason alone: whoever makes a link
// cannot put words of theirs on the page.
const signOnRefusals: Record<string, string> = {
  NO_ROLE: 'You have no role here. Ask an administrator for one: ingot role grant.',
  SIGN_ON_UNAVAILABLE: 'The provider of sign-ons does not answer. Sessions go on; try again later, or use a token.',
  SIGN_ON_OFF: 'This controller has no provider of sign-ons.',
  SIGN_ON_REVOKED: 'An administrator has revoked this session. Sign out at the provider, then sign on again.',
  DATABASE_UNAVAILABLE: 'The controller is waiting for its database. Try again in a moment.',
}

export function whyRefused(reason: string): string {
  return signOnRefusals[reason] ?? 'The sign-on was refused or took too long. Try again.'
}

export async function signOut(): Promise<void> {
  await send(session, { method: 'DELETE' })
  connection.person = null
}

// poll runs at once and then again and again, while the page can be seen. It returns what stops it. An error that run
// throws and no section has shown stands above the page until a later round succeeds, or calls ok.
export function poll(every: number, run: (signal: AbortSignal, ok: () => void) => Promise<void>): () => void {
  const stop = new AbortController()
  let timer = 0
  let busy = false
  async function round(): Promise<void> {
    clearTimeout(timer)
    if (busy || stop.signal.aborted || document.hidden) return
    busy = true
    let pause = every
    try {
      await run(stop.signal, () => refusals.drop(run))
      refusals.drop(run)
    } catch (e) {
      if (!stop.signal.aborted) {
        if (e instanceof Refusal || e instanceof Unreachable) refusals.put(run, e)
        else console.error(e)
        if (e instanceof Unreachable) pause = retry
      }
    }
    busy = false
    if (!stop.signal.aborted) timer = window.setTimeout(round, connection.failing ? Math.max(pause, retry) : pause)
  }
  const seen = () => void round()
  // What a round reads is no reason to begin anew: an effect that asks depends on what it reads itself.
  document.addEventListener('visibilitychange', seen)
  untrack(seen)
  return () => {
    stop.abort()
    refusals.drop(run)
    clearTimeout(timer)
    document.removeEventListener('visibilitychange', seen)
  }
}

// said returns the words of an error for the section that shows it.
export function said(e: unknown): string {
  if (e instanceof Refusal || e instanceof Unreachable) refusals.shown.add(e)
  return e instanceof Error ? e.message : String(e)
}

export function requestId(): string {
  return 'console-' + crypto.randomUUID()
}
