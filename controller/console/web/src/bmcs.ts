// What is done about a certificate of a BMC that has changed.
import { path, post } from './api.svelte'
import { comment, flag, quoted, type Action } from './actions'
import type { BMCCertificate } from './types'

// trust takes the certificate that a BMC shows now for the right one.
export function trust(c: BMCCertificate): Action {
  const machine = c.machine_ids[0] ?? ''
  return {
    word: 'Trust',
    of: machine || c.endpoint,
    says: `Takes the certificate ${c.offered_sha256} for the right one. Compare it first with what the BMC itself says, over a way that you trust.`,
    warns: 'The BMC’s password is sent to the holder of this certificate.',
    scope: 'admin',
    fields: [comment],
    refused: machine ? '' : 'no machine names this BMC',
    command: (v) => `ingot bmc trust ${quoted(machine || 'MACHINE')} --sha256 ${c.offered_sha256}${flag('comment', v.comment)}`,
    call: (v) => post(path`/machines/${machine}/bmc-certificate/trust`, { sha256: c.offered_sha256, comment: v.comment ?? '' }),
  }
}
