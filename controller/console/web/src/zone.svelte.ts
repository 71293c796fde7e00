// The zone of every time on the page: the reader's, or UTC on request. The header names it.
class Zone {
  utc = $state(false)

  // name is short, as the zone's people call it: CET, UTC, GMT+5:30.
  get name(): string {
    if (this.utc) return 'UTC'
    const parts = new Intl.DateTimeFormat(undefined, { timeZoneName: 'short' }).formatToParts(new Date())
    return parts.find((p) => p.type === 'timeZoneName')?.value ?? 'UTC'
  }

  // of is what a formatter takes for it; undefined is the reader's.
  get of(): string | undefined {
    return this.utc ? 'UTC' : undefined
  }
}

export const zone = new Zone()
