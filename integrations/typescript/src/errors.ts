// What an error says: the closed reason, the fields at fault, and whether waiting helps.
import type { components } from './schema.js'

export type Status = components['schemas']['google.rpc.Status']
export type Reason = components['schemas']['baremetal.v1.Reason']
export type Operation = components['schemas']['baremetal.v1.Operation']

type Info = components['schemas']['google.rpc.ErrorInfo']
type BadRequest = components['schemas']['google.rpc.BadRequest']
type RetryInfo = components['schemas']['google.rpc.RetryInfo']

/** The reasons that a moment cures. */
const passing: ReadonlySet<string> = new Set<Reason>([
  'RATE_LIMITED', 'TOO_MANY_STREAMS', 'CONTROLLER_OVERLOADED', 'SLOW_READER', 'DATABASE_UNAVAILABLE',
  'CONTROLLER_DRAINING', 'CONTROLLER_LEASE_LOST', 'DATABASE_IN_DOUBT', 'ROLES_CHANGED',
])

/** A call was refused. Switch on the reason, never on the message. */
export class IngotError extends Error {
  /** Undefined where the answer is not one of a controller. */
  readonly reason: Reason | undefined
  /** The fields at fault, and what is wrong with each. */
  readonly violations: Readonly<Record<string, string>>
  /** How many milliseconds the server asks to wait; 0 where it does not say. */
  readonly retryAfter: number

  constructor(readonly body: Partial<Status>, readonly http: number) {
    super(body.message ?? `HTTP ${http}`)
    this.name = 'IngotError'
    this.reason = detail<Info>(body, 'ErrorInfo')?.reason
    const at = detail<BadRequest>(body, 'BadRequest')?.field_violations ?? []
    this.violations = Object.fromEntries(at.map((v) => [v.field, v.description]))
    this.retryAfter = 1000 * parseFloat(detail<RetryInfo>(body, 'RetryInfo')?.retry_delay ?? '0')
  }

  /** Whether the error speaks of the connection or the moment rather than of the request. */
  get transient(): boolean {
    return this.http === 503 || (this.reason !== undefined && passing.has(this.reason))
  }
}

/** An operation has ended without success. */
export class OperationFailed extends Error {
  constructor(readonly operation: Operation) {
    super(`operation ${operation.operation_id} on ${operation.machine_id} is ${operation.phase}: ` +
      `${operation.error?.code}: ${operation.error?.message}`)
    this.name = 'OperationFailed'
  }

  get reason(): string { return this.operation.error?.code ?? '' }

  /** Whether a new operation, under another request id, may succeed as things are. */
  get retryable(): boolean { return this.operation.error?.retryable ?? false }
}

function detail<T>(body: Partial<Status>, name: string): T | undefined {
  const found = (body.details ?? []).find((d) => d['@type'] === `type.googleapis.com/google.rpc.${name}`)
  return found as T | undefined
}

/**
 * Whether fetch failed as the server's certificate does not verify, or as it speaks no TLS: waiting cures neither. Node
 * says so in the cause of the error. Browsers say nothing.
 */
function refusesServer(error: TypeError): boolean {
  const code = (error.cause as { code?: unknown } | null | undefined)?.code
  return typeof code === 'string' && /CERT|^(UNABLE_TO|INVALID|PATH_LENGTH|HOSTNAME|ERR_SSL)_/.test(code)
}

/** Whether an error speaks of the connection or the moment: fetch fails with a TypeError where there is no answer. */
export function transient(error: unknown): boolean {
  return error instanceof IngotError ? error.transient : error instanceof TypeError && !refusesServer(error)
}
