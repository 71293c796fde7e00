// Client of an Ingot controller: typed calls, safe repeats, waiting for operations, a copy of the fleet.
export { answer, connect, requestId, type Ingot, type Options } from './connect.js'
export { IngotError, OperationFailed, transient, type Operation, type Reason, type Status } from './errors.js'
export {
  ended, reconcile, wait, watchMachines, type Copy, type Machine, type MachineEvent, type OperationEvent,
  type WaitOptions,
} from './follow.js'
export type { components, paths } from './schema.js'
