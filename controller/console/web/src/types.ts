import type { components } from './schema'

type Schemas = components['schemas']

// The API always writes numbers, words, lists and maps; messages and times are left out where they are not set.
type Full<T> = T extends (infer E)[]
  ? Full<E>[]
  : T extends string | number | boolean
    ? T
    : string extends keyof T
      ? T
      : { [K in keyof T as T[K] extends Plain | undefined ? K : never]-?: Full<NonNullable<T[K]>> } & {
          [K in keyof T as T[K] extends Plain | undefined ? never : K]?: Full<NonNullable<T[K]>>
        }
type Plain = string | number | boolean | unknown[] | { [key: string]: string }

type Of<N extends string> = `baremetal.v1.${N}` extends keyof Schemas ? Full<Schemas[`baremetal.v1.${N}`]> : never

export type Machine = Of<'Machine'>
export type MachineMap = Of<'MapMachinesResponse'>
export type MachineEvent = Of<'MachineEvent'>
export type FleetSummary = Of<'FleetSummary'>
export type SearchAnswer = Of<'SearchMachinesResponse'>
export type View = Of<'View'>
export type Counts = Of<'CountMachinesResponse'>
export type Explained = Of<'ExplainMachinesResponse'>
export type Condition = Of<'Condition'>
export type Operation = Of<'Operation'>
export type Command = Of<'Command'>
export type Run = Of<'Run'>
export type Explanation = Of<'ExplainMachineResponse'>
export type Timeline = Of<'GetMachineTimelineResponse'>
export type TimelineEntry = Of<'TimelineEntry'>
export type Rollout = Of<'Rollout'>
export type RolloutPreview = Of<'RolloutPreview'>
export type RolloutMachine = Of<'RolloutMachine'>
export type Tally = Of<'RolloutTally'>
export type Selection = Of<'Selection'>
export type ServerInfo = Of<'ServerInfo'>
export type Agent = Of<'Agent'>
export type Site = Of<'Site'>
export type Discovered = Of<'DiscoveredMachine'>
export type Image = Of<'Image'>
export type AuditEntry = Of<'AuditEntry'>
export type Controller = Of<'Controller'>
export type Budget = Of<'Budget'>
export type Workflow = Of<'Workflow'>
export type Inventory = Of<'Inventory'>
export type HardwareTests = Of<'HardwareTests'>
export type ErasureCertificate = Of<'ErasureCertificate'>
export type Caller = Of<'Caller'>
export type APIToken = Of<'APIToken'>
export type RoleBinding = Of<'RoleBinding'>
export type Session = Of<'Session'>
export type BootstrapToken = Of<'BootstrapToken'>
export type Segment = Of<'Segment'>
export type SiteLease = Of<'SiteLease'>
export type Webhook = Of<'Webhook'>
export type WebhookDelivery = Of<'WebhookDelivery'>
export type BudgetSlot = Of<'BudgetSlot'>
export type BMCCertificate = Of<'BMCCertificate'>
export type BMCCredentials = Of<'BMCCredentials'>
export type Script = Of<'Script'>
export type Authority = Of<'Authority'>
export type SignOn = Of<'SignOn'>

// A time as the API writes it, or nothing.
export type Time = string | undefined
