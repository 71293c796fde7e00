// Following work and the fleet across broken streams and restarts of the controller.
import { answer, backoff, rest, type Ingot } from './connect.js'
import { IngotError, OperationFailed, transient, type Operation, type Status } from './errors.js'
import type { components } from './schema.js'

export type Machine = components['schemas']['baremetal.v1.Machine']
export type MachineEvent = components['schemas']['baremetal.v1.MachineEvent']
export type OperationEvent = components['schemas']['baremetal.v1.OperationEvent']

/** Whether an operation has ended. It never changes afterwards. */
export function ended(operation: Operation | undefined): boolean {
  return operation?.phase === 'SUCCEEDED' || operation?.phase === 'FAILED' || operation?.phase === 'CANCELED'
}

interface Line<T> { result?: T; error?: Status }

/** The results of a stream: a document a line. An error on its last line is thrown. */
async function* results<T>(body: ReadableStream<Uint8Array>): AsyncGenerator<T, void, undefined> {
  const reader = body.pipeThrough(new TextDecoderStream() as ReadableWritablePair<string, Uint8Array>).getReader()
  try {
    let rest = ''
    for (;;) {
      const { value, done } = await reader.read()
      if (done) return
      const lines = (rest + value).split('\n')
      rest = lines.pop() ?? ''
      for (const line of lines) {
        if (line === '') continue
        const { result, error } = JSON.parse(line) as Line<T>
        if (error) throw new IngotError(error, 200)
        if (result) yield result
      }
    }
  } finally {
    await reader.cancel().catch(() => undefined)
  }
}

type Body = ReadableStream<Uint8Array> | null

/** Goes on where a stream broke. open begins one at a cursor; the empty cursor is the beginning. */
async function* resumed<T extends { cursor: string }>(
  open: (cursor: string) => Promise<Body>, cursor: string, signal?: AbortSignal,
): AsyncGenerator<T, void, undefined> {
  let pauses = backoff()
  for (;;) {
    let wait = 0
    try {
      const body = await open(cursor)
      if (!body) throw new TypeError('a stream without a body')
      for await (const event of results<T>(body)) {
        pauses = backoff()
        yield event
        cursor = event.cursor
      }
    } catch (error) {
      signal?.throwIfAborted()
      if (error instanceof IngotError && error.reason === 'CURSOR_EXPIRED') cursor = '' // the database was restored
      else if (!transient(error)) throw error
      else if (error instanceof IngotError) wait = error.retryAfter
    }
    await rest(Math.max(wait, pauses.next().value ?? 0), signal)
  }
}

export interface WaitOptions {
  /** Ends the wait; the operation goes on without us. AbortSignal.timeout(900_000) is a limit. */
  signal?: AbortSignal
  /** Called with each event, once and in order. */
  changed?: (event: OperationEvent) => void | Promise<void>
}

/** Returns an operation when it has succeeded; OperationFailed is thrown where it has ended otherwise. */
export async function wait(ingot: Ingot, operationId: string, options: WaitOptions = {}): Promise<Operation> {
  const signal = options.signal ?? null
  const open = (cursor: string) => answer(ingot.GET('/api/v1/operation-events', {
    params: { query: { filter: `operation_id=${operationId}`, cursor } }, parseAs: 'stream', signal,
  })) as Promise<Body>
  let last = 0
  for await (const event of resumed<OperationEvent>(open, '', options.signal)) {
    const seq = Number(event.seq)
    if (seq > last || seq === 0) {
      last = Math.max(last, seq)
      await options.changed?.(event)
    }
    if (event.snapshot && ended(event.snapshot)) {
      if (event.snapshot.phase !== 'SUCCEEDED') throw new OperationFailed(event.snapshot)
      return event.snapshot
    }
  }
  throw new Error('unreachable')
}

/**
 * The machines that match, and then each change, for ever. Broken streams are resumed: no change is missed, and one may
 * come twice; compare machine.version. Where the database was restored the machines come once more as CURRENT: what
 * does not come up to the BOOKMARK is not there any more.
 */
export function watchMachines(
  ingot: Ingot, options: { filter?: string; cursor?: string; signal?: AbortSignal } = {},
): AsyncGenerator<MachineEvent, void, undefined> {
  const signal = options.signal ?? null
  return resumed<MachineEvent>((cursor) => answer(ingot.GET('/api/v1/machine-events', {
    params: { query: { filter: options.filter ?? '', cursor } }, parseAs: 'stream', signal,
  })) as Promise<Body>, options.cursor ?? '', options.signal)
}

export interface Copy {
  /** The cursor that was kept last; empty or undefined before the first run. */
  load(): Promise<string | undefined> | string | undefined
  /** Keeps a cursor, when what comes before it has been applied. */
  keep(cursor: string): Promise<void> | void
  /** Takes a machine that is new or has changed; one with deleted_at is gone. It may come again as it was. */
  apply(machine: Machine): Promise<void> | void
  /** Takes the ids of all machines at the end of a full walk: what the copy has besides is gone. */
  walked?(ids: Set<string>): Promise<void> | void
}

/**
 * Brings a copy of the fleet up to date: reads everything that has changed since the cursor, and returns when there is
 * nothing more. Without a cursor, or after a restore of the database, it walks the fleet first. It misses no change,
 * deletions included, however long the copy was left alone.
 */
export async function reconcile(ingot: Ingot, copy: Copy): Promise<void> {
  const cursor = await copy.load()
  if (cursor) {
    try {
      return await changes(ingot, copy, cursor)
    } catch (error) {
      if (!(error instanceof IngotError) || error.reason !== 'CURSOR_EXPIRED') throw error
    }
  }
  await changes(ingot, copy, await walk(ingot, copy))
}

async function changes(ingot: Ingot, copy: Copy, cursor: string): Promise<void> {
  for (let more = true; more;) {
    const page = await answer(ingot.GET('/api/v1/machines', { params: { query: { cursor } } }))
    for (const machine of page.machines) await copy.apply(machine)
    cursor = page.next_cursor
    more = page.more
    await copy.keep(cursor)
  }
}

/** The cursor is that of before the first page: what changes meanwhile comes after. */
async function walk(ingot: Ingot, copy: Copy): Promise<string> {
  const ids = new Set<string>()
  let cursor = ''
  for (let token = '', more = true; more;) {
    const page = await answer(ingot.GET('/api/v1/machines', { params: { query: { page_token: token } } }))
    cursor ||= page.next_cursor
    for (const machine of page.machines) {
      await copy.apply(machine)
      ids.add(machine.machine_id)
    }
    token = page.next_page_token
    more = token !== ''
  }
  await copy.walked?.(ids)
  await copy.keep(cursor)
  return cursor
}
