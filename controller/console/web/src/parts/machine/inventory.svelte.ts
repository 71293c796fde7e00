// The last inventory of a machine, with its differences from those before.
import { get, path, poll, Refusal, said } from '../../api.svelte'
import { text } from '../../format'
import type { Inventory } from '../../types'

// Neighbour is what an interface is plugged into, as it said by LLDP.
export interface Neighbour {
  chassis: string
  port: string
  port_description?: string
  system?: string
  addresses?: string[]
  vlan?: number
}

export interface Document {
  system: { vendor?: string; product?: string; serial?: string; uuid?: string; asset_tag?: string }
  cpu: { model?: string; architecture: string; sockets: number; cores: number; threads: number }
  memory: {
    total_bytes: number
    slots?: number
    dimms: { locator: string; size_bytes: number; speed_mts?: number; type?: string; manufacturer?: string; part_number?: string; serial?: string }[] | null
  }
  disks: { name: string; model?: string; serial?: string; wwn?: string; size_bytes: number; rotational: boolean; transport?: string; firmware?: string }[] | null
  arrays?: { name: string; level: string; disks: number; missing?: number; active: boolean; rebuilding?: boolean; members: string[] | null }[] | null
  nics:
    | { name: string; mac: string; driver?: string; pci?: string; link_up: boolean; speed_mbps?: number; firmware?: string; neighbours?: Neighbour[] }[]
    | null
  accelerators?: { address: string; vendor: string; device: string; model?: string; serial?: string; driver?: string; driver_version?: string; firmware?: string; memory_bytes?: number; link?: string; link_best?: string }[] | null
  firmware: { component: string; version: string }[] | null
  bmc?: { present: boolean; address?: string; version?: string }
  tpm?: { present: boolean; version?: string }
  os: { name?: string; kernel?: string; hostname?: string; firmware_is?: string }
  missing?: string[]
}

const compared = 20

export class Report {
  inventory = $state.raw<Inventory | null>(null)
  none = $state('')

  constructor(private machine: () => string) {}

  document = $derived.by((): Document | null => {
    if (!this.inventory) return null
    try {
      return JSON.parse(text(this.inventory.document)) as Document
    } catch {
      return null
    }
  })

  follow(): () => void {
    const id = this.machine()
    return poll(30_000, async (signal) => {
      try {
        this.inventory = await get<Inventory>(path`/machines/${id}/inventory`, { history: compared }, signal)
        this.none = ''
      } catch (e) {
        if (e instanceof Refusal) this.none = said(e)
        throw e
      }
    })
  }
}
