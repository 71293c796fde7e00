// What a list of machines can show of each: the columns of saved views, with how the page writes them.
import { valueOf } from './fleet.svelte'
import type { Machine } from './types'

export interface Column {
  // key is the column's name in a view.
  key: string
  name: string
  // wide is in rem; 0 takes what the others leave.
  wide: number
  // sorts says that the API puts machines in the order of it.
  sorts?: boolean
}

const all: Column[] = [
  { key: 'machine_id', name: 'Machine', wide: 15, sorts: true },
  { key: 'effective_state', name: 'State', wide: 9.5, sorts: true },
  { key: 'attention_reason', name: 'Why', wide: 0 },
  { key: 'site', name: 'Site', wide: 8, sorts: true },
  { key: 'rack', name: 'Rack', wide: 7, sorts: true },
  { key: 'phase', name: 'Phase', wide: 9.5 },
  { key: 'node_state', name: 'Lifecycle', wide: 9 },
  { key: 'updated_at', name: 'Changed', wide: 7.5, sorts: true },
  { key: 'region', name: 'Region', wide: 8 },
  { key: 'group', name: 'Group', wide: 9 },
  { key: 'location', name: 'Location', wide: 9 },
  { key: 'provider', name: 'Provider', wide: 8 },
  { key: 'cluster', name: 'Cluster', wide: 9 },
  { key: 'serial', name: 'Serial', wide: 10 },
  { key: 'mac_addresses', name: 'MAC addresses', wide: 17 },
  { key: 'image', name: 'Image', wide: 12 },
  { key: 'power_state', name: 'Power', wide: 6 },
  { key: 'conditions', name: 'Conditions', wide: 16 },
  { key: 'active_operation_id', name: 'Operation', wide: 16 },
  { key: 'last_heartbeat_at', name: 'Heard', wide: 7.5 },
  { key: 'created_at', name: 'Registered', wide: 7.5 },
  { key: 'labels', name: 'Labels', wide: 16 },
]

export const known: readonly Column[] = all

// usual is what is shown where nobody has chosen.
export const usual = all.slice(0, 8).map((c) => c.key)

// columnsOf gives the columns of a list of names; those that are none are left out.
export function columnsOf(keys: string[]): Column[] {
  return keys.flatMap((key) => {
    const label = /^labels\.(.+)$/.exec(key)?.[1]
    return all.find((c) => c.key === key) ?? (label ? { key, name: label, wide: 9 } : [])
  })
}

// textOf is what a column says of a machine, as text.
export function textOf(m: Machine, key: string): string {
  switch (key) {
    case 'attention_reason':
      return m.status?.attention_message || (m.status?.active_operation_id ? 'an operation is under way' : '')
    case 'mac_addresses':
      return m.spec?.mac_addresses.join(' ') ?? ''
    case 'power_state':
      return m.status?.power_state ?? ''
    case 'conditions':
      return (m.status?.conditions ?? []).filter((c) => c.status).map((c) => c.type).join(' ')
    case 'active_operation_id':
      return m.status?.active_operation_id ?? ''
    case 'labels':
      return Object.entries(m.labels).map(([k, v]) => `${k}=${v}`).join(' ')
  }
  return valueOf(m, key)
}
