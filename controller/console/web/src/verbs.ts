// What can be done to a machine, which call does it, and which command line does the same.
import { path, post } from './api.svelte'
import type { Person } from './api.svelte'
import type { Machine } from './types'

export interface Field {
  key: string
  label: string
  required: boolean
  choices?: string[]
  value?: string
}

export interface Verb {
  name: string
  word: string
  says: string
  scope: Person['scope']
  destructive: boolean
  fields: Field[]
  // offered: shown only where an explanation names it.
  offered?: boolean
  // refused says why the verb is not legal now; empty when it is, as far as the page can tell. The controller has the last
  // word.
  refused(m: Machine): string
  command(id: string, values: Record<string, string>): string
  // request names the work: asked again under the same name it is done once.
  call(id: string, values: Record<string, string>, request: string): Promise<unknown>
}

const comment: Field = { key: 'comment', label: 'Why (audit log)', required: false }

function busy(m: Machine): string {
  const s = m.status
  if (s?.active_operation_id) return `${s.active_operation_id} is under way`
  if (s?.effective_state === 'BLOCKED') return 'the machine is blocked; see why it is'
  return ''
}

const inPhase = (m: Machine, phases: string[], how: string): string =>
  busy(m) || (phases.includes(m.status?.phase ?? '') ? '' : `the machine is in phase ${m.status?.phase ?? 'unknown'}; ${how}`)

const quoted = (s: string): string => (/^[\w.:/@=-]+$/.test(s) ? s : `'${s.replaceAll("'", `'\\''`)}'`)
const flag = (name: string, value: string | undefined): string => (value ? ` --${name} ${quoted(value)}` : '')

export const verbs: Verb[] = [
  {
    name: 'enter-maintenance',
    word: 'Enter maintenance',
    says: 'Takes the machine out of service, so that work on it is allowed. It drains nothing.',
    scope: 'operate',
    destructive: false,
    fields: [comment],
    refused: (m) => busy(m) || (m.status?.phase === 'MAINTENANCE' ? 'it is in maintenance' : ''),
    command: (id, v) => `ingot enter-maintenance ${quoted(id)}${flag('comment', v.comment)}`,
    call: (id, v, request) => post(path`/machines/${id}/enter-maintenance`, { request_id: request, comment: v.comment ?? '' }),
  },
  {
    name: 'exit-maintenance',
    word: 'Exit maintenance',
    says: 'Puts the machine into service.',
    scope: 'operate',
    destructive: false,
    fields: [comment],
    refused: (m) => inPhase(m, ['MAINTENANCE'], 'only one in maintenance can leave it'),
    command: (id, v) => `ingot exit-maintenance ${quoted(id)}${flag('comment', v.comment)}`,
    call: (id, v, request) => post(path`/machines/${id}/exit-maintenance`, { request_id: request, comment: v.comment ?? '' }),
  },
  {
    name: 'reboot',
    word: 'Reboot',
    says: 'Restarts the machine. What runs on it is interrupted; the new boot must be seen.',
    scope: 'operate',
    destructive: true,
    fields: [{ key: 'mode', label: 'How', required: true, choices: ['graceful', 'force', 'bmc'], value: 'graceful' }],
    refused: (m) => inPhase(m, ['READY', 'MAINTENANCE'], 'it must be in service or in maintenance'),
    command: (id, v) => `ingot reboot ${quoted(id)}${v.mode === 'graceful' ? '' : flag('mode', v.mode)}`,
    call: (id, v, request) => post(path`/machines/${id}/reboot`, { request_id: request, mode: v.mode ?? '' }),
  },
  {
    name: 'reimage',
    word: 'Reimage',
    says: 'Writes an image over the system disk. What is on it is lost.',
    scope: 'operate',
    destructive: true,
    fields: [{ key: 'image', label: 'Image', required: true }],
    refused: (m) => inPhase(m, ['MAINTENANCE'], 'enter maintenance first'),
    command: (id, v) => `ingot reimage ${quoted(id)}${flag('image', v.image)}`,
    call: (id, v, request) => post(path`/machines/${id}/reimage`, { request_id: request, image_ref: v.image ?? '' }),
  },
  {
    name: 'cancel',
    word: 'Cancel the operation',
    says: 'Asks the operation to stop. What has begun on the machine ends first.',
    scope: 'operate',
    destructive: false,
    fields: [],
    refused: (m) => (m.status?.active_operation_id ? '' : 'nothing is under way'),
    command: (_, v) => `ingot cancel ${v.operation ?? ''}`,
    call: (_, v) => post(path`/operations/${v.operation ?? ''}/cancel`, {}),
  },
  {
    name: 'flag',
    word: 'Take the flag off',
    says: 'Work may be started on the machine again.',
    scope: 'admin',
    destructive: false,
    offered: true,
    fields: [{ key: 'flag', label: 'Flag', required: true, choices: ['RMA', 'Retired'], value: 'RMA' }, comment],
    refused: (m) => (m.status?.conditions.some((c) => ['RMA', 'Retired'].includes(c.type) && c.status) ? '' : 'it has no flag'),
    command: (id, v) => `ingot flag ${quoted(id)} ${v.flag ?? ''} --off${flag('comment', v.comment)}`,
    call: (id, v) => post(path`/machines/${id}/flag`, { flag: v.flag ?? '', value: false, comment: v.comment ?? '' }),
  },
  {
    name: 'clear',
    word: 'Clear the intervention',
    says: 'Says that a person has settled what needed one.',
    scope: 'admin',
    destructive: false,
    fields: [comment],
    refused: (m) =>
      m.status?.conditions.some((c) => c.type === 'NeedsIntervention' && c.status) ? '' : 'nothing waits for a person',
    command: (id, v) => `ingot clear ${quoted(id)}${flag('comment', v.comment)}`,
    call: (id, v) => post(path`/machines/${id}/clear-intervention`, { comment: v.comment ?? '' }),
  },
]

// offered finds the verb that a command line of an explanation stands for.
export function offered(command: string, machine: string): Verb | undefined {
  const [ingot, name, who] = command.split(/\s+/)
  if (ingot !== 'ingot') return undefined
  const verb = verbs.find((v) => v.name === name)
  if (!verb || (name !== 'cancel' && who !== machine)) return undefined
  if (name === 'flag' && !command.endsWith(' --off')) return undefined
  return verb
}

// given is what a command line says of the fields of its verb.
export function given(verb: Verb, command: string): Record<string, string> {
  const words = command.split(/\s+/)
  const found: Record<string, string> = {}
  if (verb.name === 'cancel') found.operation = words[2] ?? ''
  if (verb.name === 'flag') found.flag = words[3] ?? ''
  for (const f of verb.fields) {
    const at = words.indexOf('--' + f.key)
    const value = words[at + 1] ?? ''
    // Words in capitals are for a person to fill in.
    if (at > 0 && !/^[A-Z]+$/.test(value)) found[f.key] = value
  }
  return found
}
