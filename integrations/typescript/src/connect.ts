// A connection to a controller: the bearer token, and repeats of calls whose answer was lost.
import createClient, { type Client } from 'openapi-fetch'
import { IngotError, transient, type Status } from './errors.js'
import type { paths } from './schema.js'

export interface Options {
  /** Of the REST listener, such as https://ingot.example.net:50055. */
  url: string
  /** The bearer token, or what gives it for each call. */
  token: string | (() => string | Promise<string>)
  /** How many milliseconds a call is repeated while the controller is away; a minute by default. */
  patience?: number
  /** Another fetch than that of the platform. */
  fetch?: (request: Request) => Promise<Response>
}

export type Ingot = Client<paths>

/**
 * Calls that may not be sent twice: a repeat would make a second token or event, or meet a state that the first has
 * changed. Every other one is a read, carries a request id, or sets a value.
 */
const once = [
  /\/bootstrap-tokens$/, /\/api-tokens$/, /\/settle-command$/, /\/webhooks$/, /\/webhook-deliveries\/[^/]+\/redeliver$/,
  /\/webhooks\/[^/]+\/test$/, /\/discover-bmcs$/, /\/rollouts\/[^/]+\/resume$/,
]

/** The calls of the API, by path and method, with the types of the document that the controller serves. */
export function connect(options: Options): Ingot {
  const send = options.fetch ?? fetch
  const client = createClient<paths>({
    baseUrl: options.url,
    fetch: (request) => repeat(request, send, options.patience ?? 60_000),
  })
  client.use({
    async onRequest({ request }) {
      const token = typeof options.token === 'string' ? options.token : await options.token()
      request.headers.set('Authorization', `Bearer ${token}`)
      return request
    },
  })
  return client
}

async function repeat(
  request: Request, send: (request: Request) => Promise<Response>, patience: number,
): Promise<Response> {
  const mayRepeat = request.method === 'GET' || !once.some((p) => p.test(new URL(request.url).pathname))
  const until = Date.now() + patience
  for (const pause of backoff()) {
    let wait = pause
    let answer: Response | undefined
    let lost: unknown
    try {
      answer = await send(request.clone())
      if (answer.status !== 503 && answer.status !== 429) return answer
      const error = new IngotError(await answer.clone().json() as Status, answer.status)
      if (!error.transient) return answer
      wait = Math.max(wait, error.retryAfter)
    } catch (error) {
      if (request.signal.aborted || !transient(error)) throw error
      lost = error
    }
    if (!mayRepeat || Date.now() + wait > until) {
      if (answer) return answer
      throw lost
    }
    await rest(wait, request.signal)
  }
  throw new Error('unreachable')
}

/** Milliseconds to wait before each next try: a quarter of a second at first, five at most, with jitter. */
export function* backoff(): Generator<number, void, undefined> {
  for (let wait = 250; ; wait = Math.min(2 * wait, 5000)) yield wait / 2 + Math.random() * wait / 2
}

/** Waits, or throws when the signal says so. */
export function rest(ms: number, signal?: AbortSignal): Promise<void> {
  return new Promise((resolve, reject) => {
    signal?.throwIfAborted()
    const stop = () => { clearTimeout(timer); reject(signal?.reason as Error) }
    const timer = setTimeout(() => { signal?.removeEventListener('abort', stop); resolve() }, ms)
    signal?.addEventListener('abort', stop, { once: true })
  })
}

/** What a call answers with; an IngotError is thrown where it was refused. */
export async function answer<T>(call: Promise<{ data?: T; error?: Status; response: Response }>): Promise<T> {
  const { data, error, response } = await call
  if (error !== undefined || data === undefined) throw new IngotError(error ?? {}, response.status)
  return data
}

/**
 * The id of a piece of work out of what it means, such as 'deploy', 'v2.1', 'm-1'. The same words are the same id,
 * however often and wherever the program runs, so that the work happens once. What a request id cannot hold becomes an
 * underscore, and a long one ends in a hash of all words.
 */
export async function requestId(...words: string[]): Promise<string> {
  const text = words.join('-')
  const clean = [...text].map((c) => (c > ' ' && c <= '~' ? c : '_')).join('')
  if (clean === text && text.length <= 128) return text
  const sum = await crypto.subtle.digest('SHA-256', new TextEncoder().encode(words.join('\0')))
  const hash = [...new Uint8Array(sum).subarray(0, 8)].map((b) => b.toString(16).padStart(2, '0')).join('')
  return `${clean.slice(0, 127 - hash.length)}-${hash}`
}
