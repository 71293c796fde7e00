import type { Condition, Machine } from './types'

// The six words of the effective state, in the order of how soon somebody has to look.
export interface State {
  name: string
  word: string
  says: string
  // The shape tells states apart without colour.
  shape: string
}

export const states: State[] = [
  { name: 'BLOCKED', word: 'Blocked', says: 'refuses work until a person unblocks it', shape: 'M2 2h10v10H2zM5 5l4 4M9 5L5 9' },
  { name: 'ATTENTION', word: 'Attention', says: 'a person is needed', shape: 'M7 1.5l6 11H1z' },
  { name: 'BUSY', word: 'Busy', says: 'an operation is under way', shape: 'M2 2l10 5-10 5z' },
  { name: 'MAINTENANCE', word: 'Maintenance', says: 'in maintenance, with nothing under way', shape: 'M7 1l6 6-6 6-6-6z' },
  { name: 'NEW', word: 'New', says: 'never put in service', shape: 'M7 2a5 5 0 1 0 0 10A5 5 0 0 0 7 2z' },
  { name: 'IDLE', word: 'Idle', says: 'healthy and free', shape: 'M7 2a5 5 0 1 0 0 10A5 5 0 0 0 7 2z' },
]

export const unknown: State = { name: '', word: 'Unknown', says: 'the API names no state', shape: 'M3 7h8' }

// The API writes the enum's full name where a state's own name is taken.
export function stateOf(name: string | undefined): State {
  const plain = name === 'MAINTENANCE_IDLE' ? 'MAINTENANCE' : name
  return states.find((s) => s.name === plain) ?? unknown
}

// Conditions of a machine that works on with something broken. They stand beside its state, which they do not change.
const broken = ['Degraded', 'RAIDDegraded', 'HardwareFault']

// What is broken about a machine; empty when nothing is.
export function degraded(m: Machine | null): string {
  return (m?.status?.conditions ?? [])
    .filter((c) => c.status && broken.includes(c.type))
    .map((c) => c.message || c.type)
    .join('; ')
}

// Whether a condition is neither true nor false, because its witness is silent. A controller before conditions could be
// unknown sends neither field.
export function unknownCondition(c: Condition): boolean {
  return !c.known && !c.status && (!!c.observed_at || c.reason === 'SITE_AGENT_SILENT')
}

// What a condition is, in a word.
export function isOf(c: Condition): string {
  if (unknownCondition(c)) return 'unknown'
  return (c.status ? 'yes' : 'no') + (!c.known && c.observed_at ? ', as it was last observed' : '')
}
