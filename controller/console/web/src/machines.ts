// What a person writes about a machine: its registration, its fields, its end.
import { path, post, put, remove } from './api.svelte'
import { flag, list, quoted, type Action, type Field } from './actions'
import type { Machine } from './types'

type Spec = NonNullable<Machine['spec']>

interface Written {
  // key is the field of the spec, and with - for _ the flag of the command line.
  key: keyof Spec & string
  label: string
  hint?: string
  many?: boolean
}

const written: Written[] = [
  { key: 'site', label: 'Site' },
  { key: 'rack', label: 'Rack' },
  { key: 'group', label: 'Group' },
  { key: 'location', label: 'Location' },
  { key: 'serial', label: 'Serial number' },
  { key: 'mac_addresses', label: 'MAC addresses', many: true, hint: '52:54:00:12:34:56, …' },
  { key: 'bmc_endpoint', label: 'BMC: host or host:port', hint: '10.30.0.2' },
  { key: 'bmc_credentials_ref', label: 'Its credentials’ name' },
  { key: 'default_image_ref', label: 'Image where a reimage names none' },
  { key: 'install_disk', label: 'Disk that a reimage writes (empty: the only one)', hint: 'serial=S1 or size>=100GiB' },
]

const textOf = (spec: Spec | undefined, w: Written): string => {
  const value = spec?.[w.key]
  return Array.isArray(value) ? value.join(', ') : String(value ?? '')
}
const valueOf = (w: Written, text: string | undefined): string | string[] => (w.many ? list(text) : (text ?? '').trim())

// labels reads KEY=VALUE between commas or ends of lines.
function labels(text: string | undefined): Record<string, string> {
  const out: Record<string, string> = {}
  for (const one of (text ?? '').split(/[,\n]/).map((s) => s.trim()).filter(Boolean)) {
    const at = one.indexOf('=')
    if (at < 1) throw new Error(`${one} is no label: write KEY=VALUE`)
    out[one.slice(0, at).trim()] = one.slice(at + 1).trim()
  }
  return out
}
const labelText = (m: Machine | undefined): string => Object.entries(m?.labels ?? {}).map(([k, v]) => `${k}=${v}`).join(', ')

function fields(m?: Machine): Field[] {
  return [
    ...written.map((w): Field => ({ key: w.key, label: w.label, hint: w.hint, value: textOf(m?.spec, w) })),
    { key: 'labels', label: 'Labels', hint: 'env=prod, role=web', value: labelText(m) },
  ]
}

const flags = (v: Record<string, string>, keys: Written[]): string =>
  keys.map((w) => flag(w.key.replaceAll('_', '-'), list(v[w.key]).length && w.many ? list(v[w.key]).join(',') : v[w.key])).join('')

const labelFlags = (text: string | undefined, before: Record<string, string> = {}): string => {
  let now: Record<string, string>
  try {
    now = labels(text)
  } catch {
    return ''
  }
  const set = Object.entries(now).filter(([k, v]) => before[k] !== v).map(([k, v]) => ` --label ${quoted(`${k}=${v}`)}`)
  const gone = Object.keys(before).filter((k) => !(k in now)).map((k) => ` --label ${quoted(k + '-')}`)
  return [...set, ...gone].join('')
}

export const registration: Action = {
  word: 'Register…',
  says: 'Makes a record of a machine. A machine without an agent or BMC can do nothing yet.',
  scope: 'operate',
  fields: [{ key: 'id', label: 'Name: a–z, 0–9, dot, hyphen', required: true }, ...fields()],
  command: (v) => `ingot machine register ${quoted(v.id || 'MACHINE')}${flags(v, written)}${labelFlags(v.labels)}`,
  call: (v, request) => {
    const spec = Object.fromEntries(written.map((w) => [w.key, valueOf(w, v[w.key])]))
    return post('/machines', { machine_id: v.id?.trim(), labels: labels(v.labels), spec }, { create_only: true, request_id: request })
  },
}

// changed are the fields that a person has written otherwise.
const changed = (m: Machine, v: Record<string, string>): Written[] => written.filter((w) => v[w.key] !== undefined && v[w.key] !== textOf(m.spec, w))

// edit writes only what was changed, and only over the version that the dialog has shown.
export function edit(m: Machine): Action {
  return {
    word: 'Edit…',
    of: m.machine_id,
    says: 'Changes what is written about the machine. Fields left alone stay as they are.',
    scope: 'operate',
    fields: fields(m),
    refusedWith: (v) => (changed(m, v).length || (v.labels ?? '') !== labelText(m) ? '' : 'nothing is changed'),
    command: (v) =>
      `ingot machine update ${quoted(m.machine_id)}${changed(m, v).map((w) => ` --${w.key.replaceAll('_', '-')} ${v[w.key] ? quoted(w.many ? list(v[w.key]).join(',') : (v[w.key] ?? '')) : "''"}`).join('')}` +
      labelFlags(v.labels, m.labels),
    call: (v) => {
      const parts = changed(m, v)
      const mask = parts.map((w) => `spec.${w.key}`)
      if ((v.labels ?? '') !== labelText(m)) mask.push('labels')
      const spec = Object.fromEntries(parts.map((w) => [w.key, valueOf(w, v[w.key])]))
      return put(path`/machines/${m.machine_id}`, { labels: labels(v.labels), spec }, { update_mask: mask.join(','), expected_version: m.version })
    },
  }
}

// removal ends the record. The name is typed by hand: nothing brings the record back.
export function removal(m: Machine): Action {
  const alive = ['NODE_STATE_ACTIVE', 'NODE_STATE_OFFLINE'].includes(m.status?.node_state ?? '')
  return {
    word: 'Delete the record…',
    of: m.machine_id,
    says: 'Removes the machine from the fleet. Its history stays; its agent is refused.',
    warns: alive
      ? 'Its node is alive: decommission it first. With “purge” an admin deletes it as it is, and its disks keep their data.'
      : 'The record does not come back: a machine registered again is a new one.',
    scope: alive ? 'admin' : 'operate',
    fields: [
      { key: 'name', label: `Type ${m.machine_id}`, required: true },
      ...(alive ? [{ key: 'purge', label: 'Purge: delete it although its node is alive', kind: 'check' as const }] : []),
    ],
    refused: m.status?.active_operation_id ? `${m.status.active_operation_id} is under way` : '',
    refusedWith: (v) =>
      m.status?.active_operation_id ? `${m.status.active_operation_id} is under way` : v.name && v.name !== m.machine_id ? 'the name is another one' : '',
    command: (v) => `ingot machine delete ${quoted(m.machine_id)}${v.purge ? ' --purge' : ''}`,
    call: (v) => remove(path`/machines/${m.machine_id}`, { purge: v.purge === 'yes' }),
  }
}
