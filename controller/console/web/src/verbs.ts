// What can be done to a machine, which call does it, and which command line does the same.
import { get, path, post } from './api.svelte'
import type { Person } from './api.svelte'
import { comment, flag, list, quoted, type Action, type Evidence, type Field } from './actions'
import { words, zoned } from './format'
import type { Command, Machine, Operation } from './types'
import { zone } from './zone.svelte'

export interface Verb {
  name: string
  word: string
  says: string
  scope: Person['scope']
  // warns says what is lost or interrupted.
  warns?: string
  fields: Field[]
  // offered: shown only where an explanation names it.
  offered?: boolean
  // refused says why the verb is not legal now; empty when it is, as far as the page can tell. The controller has the last
  // word. What a person has filled in may lift it.
  refused(m: Machine, values?: Record<string, string>): string
  command(id: string, values: Record<string, string>): string
  evidence?(m: Machine): Promise<Evidence>
  // request names the work: asked again under the same name it is done once.
  call(id: string, values: Record<string, string>, request: string): Promise<unknown>
}

const underWay = (m: Machine): string => (m.status?.active_operation_id ? `${m.status.active_operation_id} is under way` : '')

const busy = (m: Machine): string =>
  underWay(m) || (m.status?.effective_state === 'BLOCKED' ? 'the machine is blocked; see why it is' : '')

const inPhase = (m: Machine, phases: string[], how: string): string =>
  busy(m) || (phases.includes(m.status?.phase ?? '') ? '' : `the machine is in phase ${m.status?.phase ?? 'unknown'}; ${how}`)

// maintained says why work that needs maintenance is not legal: the machine is in it, or is to enter it first.
const maintained = (m: Machine, v: Record<string, string> = {}): string =>
  v['enter-maintenance'] ? busy(m) : inPhase(m, ['MAINTENANCE'], 'enter maintenance first')

const enterFirst: Field = { key: 'enter-maintenance', label: 'Enter maintenance first, where it is not in it', kind: 'check' }
const enters = (v: Record<string, string>): string => (v['enter-maintenance'] ? ' --enter-maintenance' : '')

const pause = 1000 // milliseconds between two looks at an operation
const final = ['SUCCEEDED', 'FAILED', 'CANCELED']

// ended waits for the end of an operation, and throws where it has not succeeded.
async function ended(operation: Operation): Promise<void> {
  let o = operation
  while (!final.includes(o.phase)) {
    await new Promise((resolve) => setTimeout(resolve, pause))
    o = await get<Operation>(path`/operations/${o.operation_id}`)
  }
  if (o.phase !== 'SUCCEEDED') throw new Error(`${words(o.type)} of ${o.machine_id} is ${o.phase}: ${o.error?.message ?? ''}`)
}

// inMaintenance starts work that needs maintenance. Where the machine is to enter it first, the call itself is asked
// before, with validate_only: what is refused leaves the machine in service.
async function inMaintenance(id: string, call: string, body: Record<string, unknown>, enter: boolean): Promise<unknown> {
  if (enter) {
    await post(call, { ...body, validate_only: true })
    const why = `for ${call.split('/').pop()}`
    await ended(await post<Operation>(path`/machines/${id}/enter-maintenance`, { request_id: `${body.request_id}-enter`, comment: why }))
  }
  return post(call, body)
}

const entersBefore = (id: string, v: Record<string, string>): string => (v['enter-maintenance'] ? `ingot enter-maintenance ${quoted(id)} && ` : '')

function startWorkflow(id: string, kind: string, v: Record<string, string>, request: string): Promise<unknown> {
  const params: Record<string, string> = {}
  if (v.image) params.image_ref = v.image
  if (v.path) params.path = v.path
  const mode = v.mode?.toUpperCase().replaceAll('-', '_')
  return post('/workflows', { machine_id: id, request_id: request, kind, mode, params, enter_maintenance: v['enter-maintenance'] === 'yes' })
}

// runPlan starts one of the built-in plans.
function runPlan(id: string, plan: string, request: string): Promise<unknown> {
  return post('/runs', { machine_id: id, request_id: request, plan_id: plan, type: plan.startsWith('rma') ? 'RMA' : '' })
}

const flagged = (m: Machine, type: string): boolean => m.status?.conditions.some((c) => c.type === type && c.status) ?? false

// whatIsKnown is what the controller has of the command whose outcome nobody knows.
async function whatIsKnown(m: Machine): Promise<Evidence> {
  const id = m.status?.unresolved_command_id ?? ''
  const { commands } = await get<{ commands: Command[] }>('/commands', { machine_id: m.machine_id, page_size: 100 })
  const c = commands.find((one) => one.command_id === id)
  if (!c) return { says: `The controller lists no command ${id || 'of unknown outcome'} for this machine.`, facts: [] }
  const at = (t: string | undefined) => (t ? `${zoned(t)} ${zone.name}` : 'not known')
  return {
    says: c.message || 'No result of this command was ever received.',
    facts: [
      ['Command', `${c.command_id}, ${c.kind}${c.attempt > 1 ? `, attempt ${c.attempt}` : ''}`],
      ['Operation', c.operation_id],
      ['Executor', c.executor_agent_id],
      ['Granted', at(c.granted_at)],
      ['Executor heard last', at(m.status?.last_heartbeat_at)],
      ...Object.entries(c.evidence).map(([k, v]): [string, string] => [words(k), v]),
      ['Boot now', m.status?.boot_id || 'not known'],
      ['Power', m.status?.power_state ? `${words(m.status.power_state)} as of ${at(m.status.power_state_at)}` : 'not known'],
    ],
  }
}

export const verbs: Verb[] = [
  {
    name: 'enter-maintenance',
    word: 'Enter maintenance',
    says: 'Takes the machine out of service, so that work on it is allowed. It drains nothing.',
    scope: 'operate',
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
    fields: [comment],
    refused: (m) => inPhase(m, ['MAINTENANCE'], 'only one in maintenance can leave it'),
    command: (id, v) => `ingot exit-maintenance ${quoted(id)}${flag('comment', v.comment)}`,
    call: (id, v, request) => post(path`/machines/${id}/exit-maintenance`, { request_id: request, comment: v.comment ?? '' }),
  },
  {
    name: 'reboot',
    word: 'Reboot',
    says: 'Restarts the machine; the new boot must be seen.',
    warns: 'It interrupts what runs on the machine.',
    scope: 'operate',
    fields: [{ key: 'mode', label: 'How', required: true, choices: ['graceful', 'force', 'bmc'], value: 'graceful' }],
    refused: (m) => inPhase(m, ['READY', 'MAINTENANCE'], 'it must be in service or in maintenance'),
    command: (id, v) => `ingot reboot ${quoted(id)}${v.mode === 'graceful' ? '' : flag('mode', v.mode)}`,
    call: (id, v, request) => post(path`/machines/${id}/reboot`, { request_id: request, mode: v.mode ?? '' }),
  },
  {
    name: 'reimage',
    word: 'Reimage',
    says: 'Writes an image over the system disk.',
    warns: 'It interrupts what runs on the machine, and the data on its system disk is lost.',
    scope: 'operate',
    fields: [{ key: 'image', label: 'Image', required: true }, enterFirst],
    refused: maintained,
    command: (id, v) => `${entersBefore(id, v)}ingot reimage ${quoted(id)}${flag('image', v.image)}`,
    call: (id, v, request) =>
      inMaintenance(id, path`/machines/${id}/reimage`, { request_id: request, image_ref: v.image ?? '' }, v['enter-maintenance'] === 'yes'),
  },
  {
    name: 'test',
    word: 'Test the hardware',
    says: 'Has the machine’s agent test links, processors, memory and disks for a bounded time. Nothing is written to a disk.',
    scope: 'operate',
    fields: [
      { key: 'tests', label: 'Tests (nic, cpu, memory, disk; empty: all)' },
      { key: 'duration', label: 'Seconds that all of it may take', kind: 'number', value: '120', required: true },
      enterFirst,
    ],
    refused: maintained,
    command: (id, v) => `${entersBefore(id, v)}ingot test ${quoted(id)}${flag('tests', list(v.tests).join(','))} --duration ${v.duration}s`,
    call: (id, v, request) =>
      inMaintenance(
        id,
        path`/machines/${id}/test`,
        { request_id: request, tests: list(v.tests), duration_seconds: Number.parseInt(v.duration ?? '', 10) || 0 },
        v['enter-maintenance'] === 'yes',
      ),
  },
  {
    name: 'onboard',
    word: 'Onboard',
    says: 'Starts a workflow that brings the machine into the fleet, in stages and as many attempts as it takes.',
    warns: 'By path install an image is written over the system disk.',
    scope: 'operate',
    fields: [
      { key: 'path', label: 'Path', choices: ['install', 'adopt'], value: 'install', required: true },
      { key: 'image', label: 'Image (empty: the machine’s, or the server’s)' },
      enterFirst,
    ],
    refused: busy,
    command: (id, v) => `ingot onboard ${quoted(id)} --path ${v.path}${flag('image', v.image)}${enters(v)}`,
    call: (id, v, request) => startWorkflow(id, 'ONBOARDING', v, request),
  },
  {
    name: 'decommission',
    word: 'Decommission',
    says: 'Starts a workflow that takes the machine out of the fleet, or cleans it for its next use.',
    warns: 'Every mode interrupts the machine; reimage, storage-cleanup and full-decommission lose its data.',
    scope: 'operate',
    fields: [
      { key: 'mode', label: 'Mode', choices: ['soft-reset', 'reimage', 'storage-cleanup', 'full-decommission'], value: 'soft-reset', required: true },
      { key: 'image', label: 'Image, where one is written (empty: the machine’s, or the server’s)' },
      { key: 'name', label: 'For full-decommission: type the machine’s name' },
      enterFirst,
    ],
    refused: (m, v) => underWay(m) || (v?.mode === 'full-decommission' && v.name !== m.machine_id ? 'all its disks are erased: type its name' : ''),
    command: (id, v) => `ingot decommission ${quoted(id)} --mode ${v.mode}${flag('image', v.image)}${enters(v)}`,
    call: (id, v, request) => startWorkflow(id, 'DECOMMISSION', v, request),
  },
  {
    name: 'power on',
    word: 'Switch on',
    says: 'Switches the machine on through its BMC. It boots as its firmware says.',
    scope: 'operate',
    fields: [],
    refused: (m) => inPhase(m, ['READY', 'MAINTENANCE'], 'it must be in service or in maintenance'),
    command: (id) => `ingot power on ${quoted(id)}`,
    call: (id, _, request) => runPlan(id, 'power-on', request),
  },
  {
    name: 'power off',
    word: 'Switch off',
    says: 'Has the system shut down through its BMC, and cuts the power if it does not.',
    warns: 'What runs on the machine ends.',
    scope: 'operate',
    fields: [],
    refused: (m) => inPhase(m, ['MAINTENANCE'], 'enter maintenance first'),
    command: (id) => `ingot power off ${quoted(id)}`,
    call: (id, _, request) => runPlan(id, 'power-off', request),
  },
  {
    name: 'machine identify',
    word: 'Identify…',
    says: 'Lights the machine’s identify light through its BMC, for the person who goes to it, or turns it off.',
    scope: 'operate',
    fields: [{ key: 'light', label: 'Light', required: true, choices: ['on', 'off'], value: 'on' }],
    refused: (m) => (m.spec?.bmc_endpoint || m.spec?.provider === 'maas' ? '' : 'no BMC is known for it'),
    command: (id, v) => `ingot machine identify ${quoted(id)}${v.light === 'off' ? ' --off' : ''}`,
    call: (id, v) => post(path`/machines/${id}/identify`, { lit: v.light !== 'off' }),
  },
  {
    name: 'rma',
    word: 'Send for repair',
    says: 'Flags the machine for return or replacement. It is blocked until the flag is taken off.',
    scope: 'operate',
    fields: [],
    refused: (m) => (flagged(m, 'RMA') ? 'it is flagged already' : inPhase(m, ['MAINTENANCE'], 'enter maintenance first')),
    command: (id) => `ingot rma ${quoted(id)}`,
    call: (id, _, request) => runPlan(id, 'rma', request),
  },
  {
    name: 'rma --return',
    word: 'Back from repair',
    says: 'Takes the flag off: the machine is back.',
    scope: 'operate',
    fields: [],
    refused: (m) => underWay(m) || (flagged(m, 'RMA') ? '' : 'it is not flagged for repair'),
    command: (id) => `ingot rma ${quoted(id)} --return`,
    call: (id, _, request) => runPlan(id, 'rma-return', request),
  },
  {
    name: 'cancel',
    word: 'Cancel the operation',
    says: 'Asks the operation to stop. What has begun on the machine ends first.',
    scope: 'operate',
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
    offered: true,
    fields: [{ key: 'flag', label: 'Flag', required: true, choices: ['RMA', 'Retired'], value: 'RMA' }, comment],
    refused: (m) => (flagged(m, 'RMA') || flagged(m, 'Retired') ? '' : 'it has no flag'),
    command: (id, v) => `ingot flag ${quoted(id)} ${v.flag ?? ''} --off${flag('comment', v.comment)}`,
    call: (id, v) => post(path`/machines/${id}/flag`, { flag: v.flag ?? '', value: false, comment: v.comment ?? '' }),
  },
  {
    name: 'settle',
    word: 'Settle the outcome…',
    says: 'Records what you found out about a command of unknown outcome, and lifts the fence. Look at the machine first.',
    warns: 'Be sure that the command cannot act any more: after this, work may begin on the machine.',
    scope: 'admin',
    offered: true,
    // No verdict is chosen beforehand.
    fields: [
      { key: 'verdict', label: 'What you found', required: true, choices: ['', 'happened', 'did-not-happen'] },
      { key: 'comment', label: 'How you know (audit log)', required: true, kind: 'area', lines: 3 },
    ],
    refused: (m) => (m.status?.unresolved_command_id ? '' : 'no command of this machine has an unknown outcome'),
    evidence: whatIsKnown,
    command: (id, v) => `ingot settle ${quoted(id)} ${v.command ?? ''} --verdict ${v.verdict || 'VERDICT'} --comment ${quoted(v.comment || 'HOW-YOU-KNOW')}`,
    call: (id, v) =>
      post(path`/machines/${id}/settle-command`, { command_id: v.command ?? '', verdict: (v.verdict ?? '').replaceAll('-', '_'), comment: v.comment ?? '' }),
  },
  {
    name: 'clear',
    word: 'Clear the intervention',
    says: 'Says that a person has settled what needed one.',
    scope: 'admin',
    fields: [comment],
    refused: (m) => (flagged(m, 'NeedsIntervention') ? '' : 'nothing waits for a person'),
    command: (id, v) => `ingot clear ${quoted(id)}${flag('comment', v.comment)}`,
    call: (id, v) => post(path`/machines/${id}/clear-intervention`, { comment: v.comment ?? '' }),
  },
]

// actionOf is a verb for one machine, as its dialog takes it.
export function actionOf(verb: Verb, m: Machine): Action {
  const id = m.machine_id
  return {
    word: verb.word,
    of: id,
    says: verb.says,
    warns: verb.warns,
    scope: verb.scope,
    fields: verb.fields,
    refused: verb.refused(m),
    refusedWith: (v) => verb.refused(m, v),
    evidence: verb.evidence?.bind(verb, m),
    command: (v) => verb.command(id, v),
    call: (v, request) => verb.call(id, v, request),
  }
}

// offered finds the verb that a command line of an explanation stands for.
export function offered(command: string, machine: string): Verb | undefined {
  // A name of two words is of a group's command, or ends in a flag that makes it another verb.
  const verb = verbs.findLast((v) => {
    const [first, second] = v.name.split(' ')
    const words = command.split(/\s+/)
    if (words[0] !== 'ingot' || words[1] !== first) return false
    if (!second) return v.name === 'cancel' || words[2] === machine
    return second.startsWith('--') ? words[2] === machine && words.includes(second) : words[2] === second && words[3] === machine
  })
  if (verb?.name === 'flag' && !command.endsWith(' --off')) return undefined
  return verb
}

// given is what a command line says of the fields of its verb.
export function given(verb: Verb, command: string): Record<string, string> {
  const words = command.split(/\s+/)
  const found: Record<string, string> = {}
  if (verb.name === 'cancel') found.operation = words[2] ?? ''
  if (verb.name === 'settle') found.command = words[3] ?? ''
  if (verb.name === 'flag') found.flag = words[3] ?? ''
  for (const f of verb.fields) {
    const at = words.indexOf('--' + f.key)
    const value = f.kind === 'check' ? 'yes' : (words[at + 1] ?? '').replace(/^(\d+)s$/, '$1')
    if (f.kind === 'number' && !/^\d+$/.test(value)) continue
    // Words in capitals are for a person to fill in, and a verdict is always a person's.
    if (verb.name !== 'settle' && at > 0 && !/^[A-Z]+$/.test(value)) found[f.key] = value
  }
  return found
}
