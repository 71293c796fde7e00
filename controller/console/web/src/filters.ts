// The keys of the API's filters and their closed values, and how a text is completed with them.
import type { components } from './schema'
import { states } from './states'

type Schemas = components['schemas']
type Enum<N extends string> = `baremetal.v1.${N}` extends keyof Schemas ? Schemas[`baremetal.v1.${N}`] & string : never
// The names of an enum without its zero value and its prefix.
type Names<E extends string, P extends string = ''> = E extends `${string}_UNSPECIFIED` ? never : E extends `${P}${infer Rest}` ? Rest : E

// namesOf lists the names of an enum. A name that is missing here, or that the API has no more, is an error of types.
const namesOf = <E extends string>(all: Record<E, true>): string[] => Object.keys(all)

const phases = namesOf<Names<Enum<'MachineStatus.Phase'>>>({
  FACTORY_READY: true, READY: true, MAINTENANCE: true, PROVISIONING: true, IN_SERVICE: true, RMA: true, RETIRED: true,
})
const nodeStates = namesOf<Names<Enum<'NodeState'>, 'NODE_STATE_'>>({
  DISCOVERED: true, PENDING: true, BOOTSTRAP_ISSUED: true, INSTALLING: true, INSTALL_FAILED: true, INSTALLED: true, ENROLLING: true, ACTIVE: true,
  OFFLINE: true, QUARANTINED: true, REPROVISION: true, MIGRATING: true, DRAINING: true, DEPROVISIONING: true, RETIRED: true, REMOVING: true, DELETED: true,
})
const operationTypes = namesOf<Names<Enum<'Operation.OperationType'>>>({
  REBOOT: true, REIMAGE: true, ENTER_MAINTENANCE: true, EXIT_MAINTENANCE: true, NETBOOT: true, RECONFIGURE: true, RUN_PLAN: true, JOIN_CLUSTER: true,
  UPGRADE: true, RMA: true, ONBOARD: true, DECOMMISSION: true, NODE_TRANSITION: true, TEST_HARDWARE: true,
})
const operationPhases = namesOf<Names<Enum<'Operation.Phase'>>>({ PENDING: true, RUNNING: true, SUCCEEDED: true, FAILED: true, CANCELED: true })
const rolloutStates = namesOf<Names<Enum<'Rollout.State'>>>({
  AWAITING_APPROVAL: true, RUNNING: true, PAUSED: true, STOPPING: true, SUCCEEDED: true, COMPLETED_WITH_FAILURES: true, FAILED: true, CANCELED: true,
})
const workflowStates = namesOf<Names<Enum<'Workflow.State'>>>({
  PENDING: true, RUNNING: true, COMPLETED: true, FAILED_RETRYABLE: true, FAILED_MANUAL_INTERVENTION: true, CANCELLED: true, COMPENSATING: true, RECONCILED: true,
})
const kinds = namesOf<Names<Enum<'Workflow.Kind'>>>({ ONBOARDING: true, DECOMMISSION: true })
const modes = namesOf<Names<Enum<'Workflow.Mode'>>>({ SOFT_RESET: true, REIMAGE: true, FULL_DECOMMISSION: true, STORAGE_CLEANUP: true })
const conditions = [
  'Reachable', 'BMCReachable', 'HardwareFault', 'ProviderDrift', 'Degraded', 'RAIDDegraded', 'Provisioned', 'InCustomerCluster', 'Drained',
  'NeedsIntervention', 'OperationCanceled', 'RMA', 'Retired',
]

// Key is one of a filter, with the values that it may have where they are few. A key that ends in a dot takes a name.
export interface Key {
  key: string
  values?: string[]
}

const plain = (...keys: string[]): Key[] => keys.map((key) => ({ key }))
const truth = ['true', 'false']

export const machineKeys: Key[] = [
  { key: 'effective_state', values: states.map((s) => s.name) },
  { key: 'phase', values: phases },
  { key: 'node_state', values: nodeStates.map((s) => s.toLowerCase()) },
  ...plain('site', 'rack', 'region', 'group', 'location', 'provider', 'serial', 'cluster', 'machine_id', 'image'),
  { key: 'attention_reason', values: ['NOT_OBSERVED'] },
  ...plain('labels.'),
  ...conditions.map((c) => ({ key: `conditions.${c}`, values: [...truth, 'unknown'] })),
]
export const operationKeys: Key[] = [
  { key: 'phase', values: operationPhases },
  { key: 'type', values: operationTypes },
  ...plain('machine_id', 'request_id', 'created_after', 'created_before'),
]
export const rolloutKeys: Key[] = [{ key: 'state', values: rolloutStates }, ...plain('request_id')]
export const workflowKeys: Key[] = [
  { key: 'open', values: truth },
  { key: 'state', values: workflowStates },
  { key: 'kind', values: kinds },
  { key: 'mode', values: modes },
  ...plain('machine_id', 'failure_class'),
]
export const imageKeys: Key[] = [
  { key: 'kind', values: ['os', 'installer-kernel', 'installer-initrd', 'installer-uki'] },
  { key: 'arch', values: ['amd64', 'arm64'] },
]

// Option is a completion: the word that is offered, the whole text with it, and what a person may want to know of it.
export interface Option {
  word: string
  text: string
  says?: string
}

// lastTerm splits a text where its last term begins. A comma between brackets or quotes separates values.
export function lastTerm(text: string): [string, string] {
  let at = 0
  let depth = 0
  let quoted = false
  for (let i = 0; i < text.length; i++) {
    const c = text[i]
    if (c === '"' && text[i - 1] !== '\\') quoted = !quoted
    else if (quoted) continue
    else if (c === '(') depth++
    else if (c === ')') depth--
    else if (c === ',' && depth <= 0) at = i + 1
  }
  while (text[at] === ' ') at++
  return [text.slice(0, at), text.slice(at)]
}

// complete offers what the last word of a text may become: a key, or one of the values of its key.
export function complete(text: string, keys: Key[]): Option[] {
  const [head, term] = lastTerm(text)
  const has = (word: string, part: string) => word.toLowerCase().includes(part.toLowerCase())
  const [, name = '', operator = '', rest] = /^([\w.-]+)\s*(!?=|(?:not\s+)?in\s*\()(.*)$/.exec(term) ?? []
  if (rest === undefined) {
    const exact = keys.some((k) => k.key === term)
    const found = keys.filter((k) => has(k.key, term.trim()))
    // Those that begin so come first; without a beginning a family of keys is one.
    const first = (k: Key) => (k.key.startsWith(term) ? 0 : 1)
    const families = found.filter((k) => term || !k.key.startsWith('conditions.') || k.key === `conditions.${conditions[0]}`)
    return families.sort((a, b) => first(a) - first(b)).map((k) => {
      const key = !term && k.key.startsWith('conditions.') ? 'conditions.' : k.key
      return { word: key, text: head + key + (key.endsWith('.') ? '' : '='), says: exact && key === term ? '' : k.values?.slice(0, 3).join(', ') }
    })
  }
  const values = keys.find((k) => k.key === name)?.values ?? []
  const many = operator.endsWith('(')
  if (many && rest.includes(')')) return []
  const cut = many ? rest.lastIndexOf(',') + 1 : 0
  const before = rest.slice(0, cut)
  const part = rest.slice(cut).trim()
  const taken = before.split(',').map((v) => v.trim())
  if (values.includes(part)) return []
  return values.filter((v) => has(v, part) && !taken.includes(v)).map((v) => ({
    word: v, text: `${head}${name}${many ? ` ${operator.trim()}` : operator}${before}${before ? ' ' : ''}${/[\s,()"]/.test(v) ? `"${v.replaceAll(/["\\]/g, '\\$&')}"` : v}`,
  }))
}
