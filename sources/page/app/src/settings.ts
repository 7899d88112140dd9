/** The daemon's settings that the page needs. */
export interface Settings {
  horizons: number[]; // minutes
  staleAfter: number; // s
  leftHand: boolean;
  basemap: boolean; // basemap.pmtiles exists
  forecasts: boolean; // the daemon has a feed of forecasts
  forecaster: boolean; // operators get details of a street from it
  sites: boolean; // operators get the current speeds of detectors
  measureTypes?: MeasureType[]; // the allowed ones; any without it, and for clients
}

/** A type of measurement, and the bounds of its values. */
export interface MeasureType {
  code: string;
  unit?: string;
  min?: number;
  max?: number;
}
